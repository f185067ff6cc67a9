//! A checkpoint as the source of a candle-nn model's weights.

use std::path::Path;

use candle_core::{DType, Device, Error as CandleError, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};
use st_format::{Checkpoint, Error, ErrorKind, Result, TensorInfo};

use crate::Loader;
use crate::dtype::from_candle;

/// A `VarBuilder` over a checkpoint: a file, an index, or the directory of either.
///
/// Only headers are read here. Each tensor is read when the model asks for it, and cast on the
/// way where it asks for another dtype. A name that the checkpoint records as the alias of another
/// ([`Checkpoint::aliases`]) is there as well. Models of candle-transformers load through it unchanged:
///
/// ```
/// use candle_core::{DType, Device, Module, Tensor};
/// use st_candle::var_builder;
///
#[doc = include_str!("doc_setup.txt")]
/// let vb = var_builder(&path, DType::F32, &Device::Cpu)?;
/// let layer = candle_nn::linear_no_bias(3, 2, vb.pp("model"))?;
/// let output = layer.forward(&Tensor::ones((1, 3), DType::F32, &Device::Cpu)?)?;
/// assert_eq!(output.to_vec2::<f32>()?, [[4.5, 4.5]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// As [`Checkpoint::open`]. What the model asks for later fails as a [`candle_core::Error`], whose
/// message is that of the [`st_format::Error`] it wraps: a missing name with the nearest ones
/// there are, a shape that is not the file's.
pub fn var_builder(
    path: impl AsRef<Path>,
    dtype: DType,
    device: &Device,
) -> Result<VarBuilder<'static>> {
    Ok(var_builder_of(Checkpoint::open(path)?, dtype, device))
}

/// As [`var_builder`], over a checkpoint that is already open.
pub fn var_builder_of(
    checkpoint: Checkpoint,
    dtype: DType,
    device: &Device,
) -> VarBuilder<'static> {
    VarBuilder::from_backend(Box::new(Weights(checkpoint)), dtype, device.clone())
}

struct Weights(Checkpoint);

impl Weights {
    /// The tensor of this name, or the one it is an alias of.
    fn info<'a>(&'a self, name: &'a str) -> candle_core::Result<TensorInfo<'a>> {
        self.0.info(self.0.resolve(name)).map_err(CandleError::wrap)
    }

    fn load(&self, info: TensorInfo, dtype: DType, device: &Device) -> candle_core::Result<Tensor> {
        let mut loader = Loader::new(device);
        // What cannot be cast while it is read, candle casts, if it can.
        if let Some(to) = from_candle(dtype).filter(|&to| info.dtype().casts_to(to)) {
            loader = loader.cast(move |_| Some(to));
        }
        loader
            .load_tensor(&self.0, info.name())
            .map_err(CandleError::wrap)?
            .to_dtype(dtype)
    }
}

impl SimpleBackend for Weights {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        _: Init,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        let info = self.info(name)?;
        if info.shape() != shape.dims() {
            let message = format!(
                "shape is {:?}, the model asks for {:?}",
                info.shape(),
                shape.dims()
            );
            return Err(CandleError::wrap(
                Error::new(ErrorKind::InvalidRequest, message)
                    .with_path(self.0.path())
                    .with_tensor(name),
            ));
        }
        self.load(info, dtype, device)
    }

    fn get_unchecked(
        &self,
        name: &str,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        let info = self.info(name)?;
        self.load(info, dtype, device)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.0.get(self.0.resolve(name)).is_some()
    }
}
