//! burn's tensors become a file.

use std::borrow::Borrow;
use std::path::Path;

use burn_core::tensor::{BoolStore, DType, TensorData};
use st_format::{Dtype, Error, ErrorKind, Framework, Layout, Result, Writer};

use crate::Burn;
use crate::dtype::from_burn;

/// Writes tensors to a file, which appears, or replaces what is there, when it is complete.
///
/// ```
/// use st_burn::{TensorData, load_into_burn, save_from_burn};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model.safetensors");
/// let weight = TensorData::from([[1.5f32, 2.0], [0.0, -1.0]]);
/// save_from_burn(&path, [("weight", &weight)])?;
/// assert_eq!(load_into_burn(&path)?["weight"], weight);
/// # Ok::<(), st_format::Error>(())
/// ```
///
/// # Errors
///
/// [`Unsupported`](ErrorKind::Unsupported) for quantized tensors, which the format has no dtype
/// for; otherwise as [`Writer`]'s methods.
pub fn save_from_burn<N, T>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (N, T)>,
) -> Result<()>
where
    N: AsRef<str>,
    T: Borrow<TensorData>,
{
    let tensors: Vec<(N, T)> = tensors.into_iter().collect();
    let mut layout = Layout::new();
    for (name, tensor) in &tensors {
        let tensor = tensor.borrow();
        declare(&mut layout, name.as_ref(), tensor.dtype(), tensor.shape())
            .map_err(|error| error.with_path(&path))?;
    }
    let mut writer = Writer::create(path, layout)?;
    for (name, tensor) in &tensors {
        write(&mut writer, name.as_ref(), tensor.borrow())?;
    }
    writer.finish()
}

pub(crate) fn declare(
    layout: &mut Layout,
    name: &str,
    dtype: DType,
    shape: &[usize],
) -> Result<()> {
    let in_file: Dtype = from_burn(dtype).ok_or_else(|| {
        let message = format!(
            "the format has no dtype for {}'s {}",
            Burn::NAME,
            dtype.name()
        );
        Error::new(ErrorKind::Unsupported, message).with_tensor(name)
    })?;
    layout.tensor(name, in_file, shape)?;
    Ok(())
}

pub(crate) fn write(writer: &mut Writer, name: &str, tensor: &TensorData) -> Result<()> {
    if tensor.dtype() == DType::Bool(BoolStore::U32) {
        let bytes: Vec<u8> = tensor.iter::<bool>().map(u8::from).collect();
        return writer.write(name, &bytes);
    }
    writer.write(name, tensor.as_bytes())
}
