//! Model weights from `.safetensors` files to the tensors of candle, tch, burn and ndarray.
//!
//! This crate only gathers: [`mod@format`] knows the format, and each framework's adapter is behind
//! a feature of its name. An engine that needs one framework may as well depend on that adapter
//! alone.

#![forbid(unsafe_code)]

#[cfg(feature = "burn")]
pub use st_burn as burn;
#[cfg(feature = "candle")]
pub use st_candle as candle;
pub use st_format as format;
#[cfg(feature = "ndarray")]
pub use st_ndarray as ndarray;
#[cfg(feature = "tch")]
pub use st_tch as tch;

/// The README's code is compiled and run with the tests.
#[cfg(all(
    doctest,
    feature = "burn",
    feature = "candle-nn",
    feature = "ndarray",
    feature = "tch"
))]
#[doc = include_str!("../README.md")]
struct Readme;
