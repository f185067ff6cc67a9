//! How much of each tensor has been written.

use std::collections::BTreeMap;

use super::{Layout, checksum};
use crate::checksum::Checksum;
use crate::error::{Error, ErrorKind, Result};
use crate::{Header, TensorInfo};

#[derive(Debug)]
pub(super) struct Progress {
    header: Header,
    /// How much of each tensor is there, in file order.
    written: Vec<u64>,
    /// Of each tensor, in file order, where they are wanted.
    checksums: Option<Vec<Checksum>>,
}

pub(super) struct Place {
    at: usize,
    /// From the start of the file.
    pub(super) offset: u64,
}

impl Progress {
    /// The first bytes of the file, up to the data, with none of which written.
    pub(super) fn begin(layout: Layout) -> Result<(Vec<u8>, Progress)> {
        let has_checksums = layout.has_checksums();
        let (bytes, header) = layout.into_header()?;
        let progress = Progress {
            written: vec![0; header.len()],
            checksums: has_checksums.then(|| vec![Checksum::default(); header.len()]),
            header,
        };
        Ok((bytes, progress))
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// Where in the file the next `len` bytes of a tensor belong.
    pub(super) fn place(&self, name: &str, len: usize) -> Result<Place> {
        let at = self
            .header
            .position(name)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "it was not declared"))?;
        let info = self.header.at(at);
        let (written, full) = (self.written[at], info.byte_len());
        let end = written + len as u64;
        if end > full {
            let message = match written == full {
                true => format!(
                    "{} is written already, all {full} bytes of it",
                    shown(&info)
                ),
                false => format!("written {end} bytes, {} has {full}", shown(&info)),
            };
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        Ok(Place {
            at,
            offset: self.header.data_start() + info.data_offsets().start + written,
        })
    }

    /// Takes note that the next bytes of a tensor have been written.
    pub(super) fn add(&mut self, place: &Place, bytes: &[u8]) {
        if let Some(checksums) = &mut self.checksums {
            checksums[place.at].add(bytes);
        }
        self.written[place.at] += bytes.len() as u64;
    }

    pub(super) fn check_complete(&self) -> Result<()> {
        for (info, &written) in self.header.iter().zip(&self.written) {
            if written < info.byte_len() {
                let message = format!(
                    "only {written} bytes were written, {} has {}",
                    shown(&info),
                    info.byte_len()
                );
                return Err(Error::new(ErrorKind::InvalidRequest, message).with_tensor(info.name()));
            }
        }
        Ok(())
    }

    /// The metadata with the checksums of all that has been written, where they are wanted.
    pub(super) fn checksums(&mut self) -> Option<BTreeMap<String, String>> {
        let checksums = self.checksums.take()?;
        let mut metadata = self.header.metadata().clone();
        for (info, checksum) in self.header.iter().zip(checksums) {
            metadata.insert(checksum::key(info.name()), checksum.finish());
        }
        Some(metadata)
    }
}

fn shown(info: &TensorInfo) -> String {
    format!("{} {:?}", info.dtype(), info.shape())
}
