//! The battery of checks, over burn.

use st_burn::{Burn, TensorData, from_burn};
use st_conformance::{Adapter, Held, battery};
use st_format::Dtype;

struct OnHost;

impl Adapter for OnHost {
    type Framework = Burn;
    type Tensor = TensorData;

    fn framework() -> Burn {
        Burn
    }

    fn promised(dtype: Dtype) -> Option<Dtype> {
        // The table in the crate's documentation, once more.
        match dtype {
            Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::F8E4M3Fnuz | Dtype::F8E5M2Fnuz => {
                Some(Dtype::F16)
            }
            Dtype::F8E8M0 => Some(Dtype::BF16),
            Dtype::F4 | Dtype::F6E2M3 | Dtype::F6E3M2 | Dtype::C64 => None,
            other => Some(other),
        }
    }

    fn look(tensor: &TensorData) -> Held {
        let dtype = from_burn(tensor.dtype()).expect("a dtype of the format");
        let address = tensor.as_bytes().as_ptr().addr();
        assert_eq!(
            address % dtype.alignment(),
            0,
            "burn would panic at {dtype}"
        );
        Held {
            dtype,
            shape: tensor.shape().to_vec(),
            bytes: tensor.as_bytes().to_vec(),
        }
    }
}

battery!(OnHost);
