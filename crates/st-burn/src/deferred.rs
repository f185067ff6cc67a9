//! A checkpoint's tensors as burn-store wants them: named now, read when they are asked for.

use std::sync::Arc;

use burn_core::tensor::{DType, TensorData};
use burn_store::burn_pack;
use st_format::{Checkpoint, Dtype, ErrorKind, Result, TensorInfo};

use crate::dtype::{held_as, to_burn};
use crate::{Burn, Loader, memory};

/// The tensor `info`, called `name`, whose bytes are read when they are asked for.
///
/// What cannot be loaded is a tensor all the same, and the error is what one gets when asking for
/// its bytes, so that it stands in no other tensor's way.
pub(crate) fn tensor(
    checkpoint: &Arc<Checkpoint>,
    info: &TensorInfo,
    name: String,
) -> burn_pack::Tensor {
    let held = held_as(info.dtype());
    let stand_in = match info.dtype().is_float() {
        true => DType::F32,
        false => DType::U8,
    };
    let dtype = held.and_then(to_burn).unwrap_or(stand_in);
    let dims = info.shape().iter();
    let elements = dims.fold(1_usize, |product, &dim| product.saturating_mul(dim));
    let (checkpoint, in_file) = (Arc::clone(checkpoint), info.name().to_owned());
    burn_pack::Tensor::deferred(
        name,
        dtype,
        info.shape().to_vec(),
        None,
        elements.saturating_mul(dtype.size()),
        move || match read(&checkpoint, &in_file) {
            Ok(data) => Ok(data.into_bytes()),
            Err(error) if error.kind() == ErrorKind::Io => {
                Err(burn_pack::Error::IoError(error.to_string()))
            }
            Err(error) => Err(burn_pack::Error::ValidationError(error.to_string())),
        },
    )
}

fn read(checkpoint: &Checkpoint, name: &str) -> Result<TensorData> {
    let info = checkpoint.info(name)?;
    if let Some(tensor) = in_place(checkpoint, &info)? {
        return Ok(tensor);
    }
    // Asking the system how many threads there could be takes longer than reading a small tensor.
    let threads = match info.byte_len() < LARGE {
        true => 1,
        false => 0,
    };
    let loader = Loader::new(Burn).threads(threads);
    loader.load_tensor(checkpoint, name)
}

/// What several threads may be worth.
const LARGE: u64 = 4 << 20;

/// The tensor where it lies, if it lies in memory, and as burn needs it.
pub(crate) fn in_place(checkpoint: &Checkpoint, info: &TensorInfo) -> Result<Option<TensorData>> {
    let dtype: Dtype = info.dtype();
    if held_as(dtype) != Some(dtype) {
        return Ok(None);
    }
    let Some(bytes) = checkpoint.bytes(info.name())? else {
        return Ok(None);
    };
    memory::shared(bytes, dtype, info.shape())
        .map_err(|error| error.with_path(checkpoint.path()).with_tensor(info.name()))
}
