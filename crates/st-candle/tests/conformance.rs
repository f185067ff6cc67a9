//! The battery of checks, over candle on the CPU.

use candle_core::{CpuStorage, Device, Storage, Tensor, WithDType};
use float8::F8E4M3;
use half::{bf16, f16};
use st_candle::{Candle, from_candle};
use st_conformance::{Adapter, Held, battery};
use st_format::Dtype;

struct OnCpu;

impl Adapter for OnCpu {
    type Framework = Candle;
    type Tensor = Tensor;

    fn framework() -> Candle {
        Candle::from(&Device::Cpu)
    }

    fn promised(dtype: Dtype) -> Option<Dtype> {
        // The table in the crate's documentation, once more.
        match dtype {
            Dtype::Bool => Some(Dtype::U8),
            Dtype::I8 => Some(Dtype::I16),
            Dtype::U16 => Some(Dtype::U32),
            Dtype::F8E5M2 | Dtype::F8E4M3Fnuz | Dtype::F8E5M2Fnuz => Some(Dtype::F16),
            Dtype::U64 | Dtype::C64 => None,
            other => Some(other),
        }
    }

    fn look(tensor: &Tensor) -> Held {
        let dtype = from_candle(tensor.dtype()).expect("a dtype of the format");
        let bytes = match dtype {
            Dtype::U8 => elements::<u8>(tensor),
            Dtype::U32 => elements::<u32>(tensor),
            Dtype::I16 => elements::<i16>(tensor),
            Dtype::I32 => elements::<i32>(tensor),
            Dtype::I64 => elements::<i64>(tensor),
            Dtype::BF16 => elements::<bf16>(tensor),
            Dtype::F16 => elements::<f16>(tensor),
            Dtype::F32 => elements::<f32>(tensor),
            Dtype::F64 => elements::<f64>(tensor),
            Dtype::F8E4M3 => elements::<F8E4M3>(tensor),
            _ => opaque(tensor),
        };
        Held {
            dtype,
            shape: tensor.dims().to_vec(),
            bytes,
        }
    }
}

fn elements<T: WithDType + bytemuck::Pod>(tensor: &Tensor) -> Vec<u8> {
    let flat = tensor.flatten_all().and_then(|flat| flat.to_vec1::<T>());
    bytemuck::cast_slice(&flat.expect("elements")).to_vec()
}

fn opaque(tensor: &Tensor) -> Vec<u8> {
    let (storage, layout) = tensor.storage_and_layout();
    assert_eq!(layout.start_offset(), 0);
    match &*storage {
        Storage::Cpu(
            CpuStorage::F4(bytes)
            | CpuStorage::F6E2M3(bytes)
            | CpuStorage::F6E3M2(bytes)
            | CpuStorage::F8E8M0(bytes),
        ) => bytes.clone(),
        _ => panic!("an opaque dtype in other storage"),
    }
}

battery!(OnCpu);
