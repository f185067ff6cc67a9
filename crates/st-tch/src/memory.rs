//! Memory of libtorch's that a load fills.

use std::mem::MaybeUninit;

use st_format::{Memory, Result, allocation_len};
use tch::{Device, Kind, Tensor};

use crate::error::out_of_memory;

/// Memory that libtorch has allocated, and that becomes the tensors that are read into it.
#[derive(Debug)]
pub struct TorchMemory {
    /// One tensor of bytes on the CPU, which may be longer than what is used of it.
    bytes: Tensor,
    len: usize,
}

impl TorchMemory {
    pub(crate) fn new(bytes: u64) -> Result<TorchMemory> {
        // A length that is too large for the type is so for libtorch, too.
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        let allocation = i64::try_from(allocation_len(len)).unwrap_or(i64::MAX);
        let tensor = Tensor::f_empty([allocation], (Kind::Uint8, Device::Cpu));
        Ok(TorchMemory {
            bytes: tensor.map_err(|error| out_of_memory(bytes, error))?,
            len,
        })
    }

    /// The bytes, of which the first ones are used.
    pub(crate) fn into_tensor(self) -> Tensor {
        self.bytes
    }
}

impl Memory for TorchMemory {
    fn bytes_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        if self.len == 0 {
            return &mut [];
        }
        let start = self.bytes.data_ptr().cast::<MaybeUninit<u8>>();
        // SAFETY: `new` had libtorch allocate a contiguous tensor of at least `len` > 0 bytes on
        // the CPU (and no more than i64::MAX), which `start` is the start of; the tensor has not
        // been resized since. Bytes have alignment 1, and MaybeUninit needs no initialisation.
        // The access is exclusive: the tensor is private to this value, which has never given out
        // another handle of it, so that libtorch has no reason to touch the memory and nobody
        // else can; and `self` is borrowed exclusively as long as the slice is.
        unsafe { std::slice::from_raw_parts_mut(start, self.len) }
    }

    // Nothing depends on it: a tensor of memory that was not filled holds what `Tensor::empty`
    // holds, which tch deems safe, and bools are looked into first (`tensor::in_memory`).
    unsafe fn assume_filled(&mut self) {}
}
