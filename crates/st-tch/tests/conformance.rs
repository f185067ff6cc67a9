//! The battery of checks, over tch on the CPU.

use st_conformance::{Adapter, Held, battery};
use st_format::Dtype;
use st_tch::{Tch, from_tch};
use tch::{Device, Tensor};

struct OnCpu;

impl Adapter for OnCpu {
    type Framework = Tch;
    type Tensor = Tensor;

    fn framework() -> Tch {
        Tch::from(Device::Cpu)
    }

    fn promised(dtype: Dtype) -> Option<Dtype> {
        // The table in the crate's documentation, once more.
        match dtype {
            Dtype::U16 | Dtype::U32 | Dtype::U64 => None,
            Dtype::F4 | Dtype::F6E2M3 | Dtype::F6E3M2 | Dtype::F8E8M0 => None,
            other => Some(other),
        }
    }

    fn look(tensor: &Tensor) -> Held {
        let dtype = from_tch(tensor.kind()).expect("a dtype of the format");
        let mut bytes = vec![0; tensor.numel() * dtype.bytes().expect("whole bytes")];
        tensor.copy_data_u8(&mut bytes, tensor.numel());
        Held {
            dtype,
            shape: tensor.size().iter().map(|&dim| dim as usize).collect(),
            bytes,
        }
    }
}

battery!(OnCpu);
