//! Model weights from `.safetensors` files to the tensors of candle, tch, burn and ndarray.

pub use st_format as format;

#[cfg(feature = "candle")]
pub use st_candle as candle;
