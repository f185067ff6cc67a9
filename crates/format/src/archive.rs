//! A whole file in memory: its bytes and its header.

use crate::error::{Error, ErrorKind, Result};
use crate::{Header, TensorInfo, TensorView, foreign};

/// A safetensors file whose bytes are in memory, be they read, received or mapped
/// ([`Mapped`](crate::Mapped)).
///
/// ```
/// use st_format::SafeTensors;
///
/// let json = br#"{"bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}   "#;
/// let mut file = (json.len() as u64).to_le_bytes().to_vec();
/// file.extend(json);
/// file.extend([1.5f32, -2.0].map(f32::to_le_bytes).as_flattened());
///
/// let tensors = SafeTensors::new(file)?;
/// assert_eq!(tensors.tensor("bias")?.data()[..4], 1.5f32.to_le_bytes());
/// assert_eq!(
///     tensors.tensor("bais").unwrap_err().to_string(),
///     r#"tensor "bais": no such tensor; nearest: "bias""#,
/// );
/// # Ok::<(), st_format::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SafeTensors<B> {
    header: Header,
    bytes: B,
}

impl<B: AsRef<[u8]>> SafeTensors<B> {
    /// Reads the header of a whole file and keeps the bytes.
    ///
    /// # Errors
    ///
    /// As [`Header::parse`], and [`InvalidLayout`](ErrorKind::InvalidLayout) where there are more
    /// or fewer bytes than the header describes.
    pub fn new(bytes: B) -> Result<Self> {
        let slice = bytes.as_ref();
        let start = &slice[..slice.len().min(foreign::LOOK_AT)];
        let header = Header::from_bytes(slice).map_err(|error| foreign::explain(start, error))?;
        Ok(SafeTensors { header, bytes })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The tensor of this name.
    ///
    /// # Errors
    ///
    /// [`NotFound`](ErrorKind::NotFound), with the nearest names there are.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>> {
        match self.header.get(name) {
            Some(info) => self.view(info),
            None => Err(no_such_tensor(
                name,
                self.header.iter().map(|info| info.name()),
            )),
        }
    }

    /// All tensors in file order.
    ///
    /// # Errors
    ///
    /// None, unless `B` returns other bytes than before.
    pub fn tensors(&self) -> impl Iterator<Item = Result<TensorView<'_>>> {
        self.header.iter().map(|info| self.view(info))
    }

    /// The bytes of the file.
    pub fn into_bytes(self) -> B {
        self.bytes
    }

    fn view<'a>(&'a self, info: TensorInfo<'a>) -> Result<TensorView<'a>> {
        // Checked again, for nothing obliges `as_ref` to return the same bytes twice.
        let start = self.header.data_start();
        let offsets = info.data_offsets();
        let data = usize::try_from(start + offsets.start)
            .ok()
            .zip(usize::try_from(start + offsets.end).ok())
            .and_then(|(begin, end)| self.bytes.as_ref().get(begin..end))
            .ok_or_else(|| {
                let message = "the bytes are no longer those the header was read from";
                Error::new(ErrorKind::InvalidRequest, message).with_tensor(info.name())
            })?;
        Ok(TensorView::of_archive(info, data))
    }
}

/// The error for a name that is not there, with the three names that look most like it.
pub(crate) fn no_such_tensor<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Error {
    const SHOWN: usize = 3;
    const LIKE: f64 = 0.6;
    // Names of too different a length are not alike, and comparing them could take long.
    let lengths = name.len() / 2..=name.len() * 2;
    let mut nearest: Vec<(f64, &str)> = names
        .filter(|other| lengths.contains(&other.len()))
        .map(|other| (strsim::normalized_damerau_levenshtein(name, other), other))
        .filter(|&(likeness, _)| likeness >= LIKE)
        .collect();
    nearest.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let mut message = "no such tensor".to_owned();
    for (at, (_, other)) in nearest.iter().take(SHOWN).enumerate() {
        message += if at == 0 { "; nearest: " } else { ", " };
        message += &format!("{other:?}");
    }
    Error::new(ErrorKind::NotFound, message).with_tensor(name)
}
