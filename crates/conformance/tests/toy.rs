//! A fifth framework is one implementation of `Framework` and `SaveFrom`, and one call of the
//! battery.

use std::ops::Range;
use std::sync::Arc;

use st_conformance::{Adapter, Held, battery};
use st_format::{Buffer, Dtype, Framework, Part, Result, SaveFrom, Storage};

/// Keeps F32, U8 and I16, and lacks the rest.
struct Toy;

struct ToyTensor {
    dtype: Dtype,
    shape: Vec<usize>,
    memory: Arc<Vec<u8>>,
    bytes: Range<usize>,
}

impl Framework for Toy {
    const NAME: &'static str = "toy";
    type Tensor = ToyTensor;
    type Memory = Buffer;

    fn held_as(&self, dtype: Dtype) -> Option<Dtype> {
        ToyAdapter::promised(dtype)
    }

    fn shares_memory(&self, _: Dtype) -> bool {
        true
    }

    fn is_staging(&self) -> bool {
        true
    }

    fn allocate(&self, _: Dtype, bytes: u64) -> Result<Buffer> {
        Buffer::new(Dtype::U8, bytes)
    }

    fn tensors(&self, memory: Buffer, dtype: Dtype, parts: &[Part<'_>]) -> Vec<Result<ToyTensor>> {
        let all = match memory.into_vec::<u8>() {
            Ok(all) => Arc::new(all),
            Err(error) => return vec![Err(error)],
        };
        let tensor = |part: &Part| {
            Ok(ToyTensor {
                dtype,
                shape: part.shape.to_vec(),
                memory: Arc::clone(&all),
                bytes: part.bytes.start as usize..part.bytes.end as usize,
            })
        };
        parts.iter().map(tensor).collect()
    }

    fn share(&self, tensor: &ToyTensor) -> ToyTensor {
        ToyTensor {
            shape: tensor.shape.clone(),
            memory: Arc::clone(&tensor.memory),
            bytes: tensor.bytes.clone(),
            ..*tensor
        }
    }
}

impl SaveFrom<&ToyTensor> for Toy {
    fn dtype(tensor: &&ToyTensor) -> Result<Dtype> {
        Ok(tensor.dtype)
    }

    fn shape(tensor: &&ToyTensor) -> Vec<usize> {
        tensor.shape.clone()
    }

    fn storage(tensor: &&ToyTensor) -> Option<Storage> {
        Some(Storage {
            allocation: tensor.memory.as_ptr().addr(),
            offset: tensor.bytes.start,
            strides: Vec::new(),
        })
    }

    fn bytes(tensor: &&ToyTensor, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        write(&tensor.memory[tensor.bytes.clone()])
    }
}

struct ToyAdapter;

impl Adapter for ToyAdapter {
    type Framework = Toy;
    type Tensor = ToyTensor;

    fn framework() -> Toy {
        Toy
    }

    fn promised(dtype: Dtype) -> Option<Dtype> {
        match dtype {
            Dtype::F32 | Dtype::U8 | Dtype::I16 => Some(dtype),
            Dtype::I8 => Some(Dtype::I16),
            Dtype::BF16 => Some(Dtype::F32),
            _ => None,
        }
    }

    fn look(tensor: &ToyTensor) -> Held {
        Held {
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            bytes: tensor.memory[tensor.bytes.clone()].to_vec(),
        }
    }
}

battery!(ToyAdapter);
