//! What loading promises beyond the battery of checks.

use st_conformance::file::{self, Tensor};
use st_format::{Dtype, ErrorKind};
use st_tch::{Loader, load_into_tch, load_tensor_into_tch, map_into_tch};
use tch::{Device, Kind};

fn written(tensors: &[Tensor]) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = file::write(dir.path(), "model.safetensors", tensors);
    (dir, path)
}

#[test]
fn what_tch_lacks_is_widened_on_request() {
    let (_dir, path) = written(&[
        Tensor::new("u16", Dtype::U16, &[2]).with_bytes(vec![1, 0, 0xFF, 0xFF]),
        Tensor::new("u32", Dtype::U32, &[1]).with_bytes(vec![0xFF; 4]),
        Tensor::new("u64", Dtype::U64, &[1]).with_bytes(vec![2, 0, 0, 0, 0, 0, 0, 0]),
    ]);
    let loader = Loader::new(Device::Cpu).cast(|info| match info.dtype() {
        Dtype::U16 => Some(Dtype::I32),
        Dtype::U32 => Some(Dtype::I64),
        Dtype::U64 => Some(Dtype::F64),
        _ => None,
    });
    let tensors = loader.load(&path).unwrap();
    assert_eq!(tensors["u16"], tch::Tensor::from_slice(&[1, 0xFFFF]));
    assert_eq!(tensors["u32"], tch::Tensor::from_slice(&[0xFFFF_FFFF_i64]));
    assert_eq!(tensors["u64"], tch::Tensor::from_slice(&[2.0]));
}

#[test]
fn a_byte_that_is_no_bool_does_not_become_one() {
    let (_dir, path) = written(&[
        Tensor::new("good", Dtype::Bool, &[2]).with_bytes(vec![0, 1]),
        Tensor::new("mask", Dtype::Bool, &[3]).with_bytes(vec![0, 1, 2]),
    ]);
    // SAFETY: nobody else knows of the file.
    let mapped = unsafe { map_into_tch(&path) };
    for result in [load_into_tch(&path, Device::Cpu), mapped] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        assert_eq!(error.tensor(), Some("mask"), "{error}");
    }
    assert!(load_tensor_into_tch(&path, "good", Device::Cpu).is_ok());
    let as_bytes = Loader::new(Device::Cpu).cast(|_| Some(Dtype::U8));
    let mask = &as_bytes.load(&path).unwrap()["mask"];
    assert_eq!(*mask, tch::Tensor::from_slice(&[0_u8, 1, 2]));
}

#[test]
fn tensors_that_share_memory_do_not_disturb_each_other() {
    let floats = |value: f32| [value; 4].map(f32::to_le_bytes).concat();
    let (_dir, path) = written(&[
        Tensor::new("a", Dtype::F32, &[2, 2]).with_bytes(floats(1.0)),
        Tensor::new("b", Dtype::F32, &[2, 2]).with_bytes(floats(2.0)),
    ]);
    let tensors = load_into_tch(&path, Device::Cpu).unwrap();
    let (mut a, b) = (tensors["a"].shallow_clone(), tensors["b"].shallow_clone());
    assert_eq!(b.data_ptr().addr() - a.data_ptr().addr(), 16);
    let b = b.set_requires_grad(true);
    let sum = (&b * &b).sum(Kind::Float);
    // With a version counter in common, autograd would refuse to go backward after this.
    let _ = a.fill_(7.0);
    sum.backward();
    let twice = tch::Tensor::full([2, 2], 4.0, (Kind::Float, Device::Cpu));
    assert_eq!(b.grad(), twice);
    assert_eq!(b.double_value(&[1, 1]), 2.0);
}

#[test]
fn memory_is_aligned_whatever_the_file_s_alignment() {
    let (_dir, path) = written(&[
        Tensor::new("shift", Dtype::U8, &[1]),
        Tensor::new("double", Dtype::F64, &[3]),
        Tensor::new("empty", Dtype::F64, &[0]),
    ]);
    let tensors = load_into_tch(&path, Device::Cpu).unwrap();
    assert_eq!(tensors["double"].data_ptr().addr() % 8, 0);
    assert_eq!(tensors["empty"].size(), [0]);
}

#[test]
fn what_libtorch_refuses_is_an_error_of_one_line() {
    let (_dir, path) = written(&[Tensor::new("odd", Dtype::F32, &[0, usize::MAX])]);
    let error = load_into_tch(&path, Device::Cpu).unwrap_err();
    assert_eq!(error.tensor(), Some("odd"));
    assert_eq!(error.kind(), ErrorKind::Unsupported);

    // Its own refusal, which comes with a C++ backtrace.
    let error = load_into_tch(&path, Device::Cuda(0)).unwrap_err();
    assert!(!error.to_string().contains('\n'), "{error}");
}
