//! What arrays hold, and what they refuse.

use std::path::PathBuf;

use st_conformance::file::{self, Tensor};
use st_format::{Checkpoint, Dtype, Error, ErrorKind, SafeTensors};
use st_ndarray::float8::{F8E4M3, F8E5M2};
use st_ndarray::half::{bf16, f16};
use st_ndarray::ndarray::{IxDyn, array};
use st_ndarray::num_complex::Complex;
use st_ndarray::{
    AnyArray, Element, Loader, MappedTensor, NdArray, load_into_ndarray, load_tensor_into_ndarray,
    map_into_ndarray, view_as_ndarray,
};

/// A file of tensors, and the ways into it.
struct Written {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Written {
    fn new(tensors: &[Tensor]) -> Written {
        let dir = tempfile::tempdir().unwrap();
        let path = file::write(dir.path(), "model.safetensors", tensors);
        Written { path, _dir: dir }
    }

    fn load(&self, name: &str) -> Result<AnyArray, Error> {
        load_tensor_into_ndarray(&self.path, name)
    }

    fn map(&self, name: &str) -> MappedTensor {
        // SAFETY: the file lies in a directory of its own, and no test writes to it again.
        let mut tensors = unsafe { map_into_ndarray(&self.path) }.unwrap();
        tensors.remove(name).unwrap()
    }

    /// The errors that all ways to an array of `T`s end in.
    fn refusals<T: Element>(&self, name: &str) -> [Error; 4] {
        let bytes = std::fs::read(&self.path).unwrap();
        let tensors = SafeTensors::new(bytes).unwrap();
        let tensor = self.map(name);
        let loaded = self.load(name).and_then(AnyArray::into_array::<T>);
        [
            loaded.err(),
            tensor.array::<T>().err(),
            tensor.view::<T>().err(),
            view_as_ndarray::<T>(tensors.tensor(name).unwrap()).err(),
        ]
        .map(|error| error.expect("a refusal"))
    }
}

fn of_bytes(name: &str, dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Tensor {
    Tensor::new(name, dtype, shape).with_bytes(bytes.to_vec())
}

#[test]
fn elements_have_the_values_of_the_file() {
    let written = Written::new(&[
        of_bytes("bool", Dtype::Bool, &[2], &[0, 1]),
        of_bytes("i8", Dtype::I8, &[2], &[0xFF, 0x7F]),
        of_bytes("u16", Dtype::U16, &[1], &[0x34, 0x12]),
        of_bytes("e4m3", Dtype::F8E4M3, &[2], &[0x38, 0xC4]),
        of_bytes("e5m2", Dtype::F8E5M2, &[2], &[0x3C, 0x42]),
        of_bytes("f16", Dtype::F16, &[1], &[0x00, 0x3E]),
        of_bytes("bf16", Dtype::BF16, &[1], &[0xC0, 0x3F]),
        of_bytes(
            "c64",
            Dtype::C64,
            &[1],
            [1.5_f32, -2.0].map(f32::to_le_bytes).as_flattened(),
        ),
        of_bytes("f4", Dtype::F4, &[2, 2], &[0x21, 0x43]),
    ]);
    let arrays = load_into_ndarray(&written.path).unwrap();
    let expected = [
        ("bool", AnyArray::from(array![false, true])),
        ("i8", array![-1_i8, 127].into()),
        ("u16", array![0x1234_u16].into()),
        ("e4m3", array![1.0, -3.0].mapv(F8E4M3::from_f64).into()),
        ("e5m2", array![1.0, 3.0].mapv(F8E5M2::from_f64).into()),
        ("f16", array![f16::from_f32(1.5)].into()),
        ("bf16", array![bf16::from_f32(1.5)].into()),
        ("c64", array![Complex::new(1.5_f32, -2.0)].into()),
    ];
    for (name, expected) in expected {
        assert_eq!(arrays[name], expected, "{name}");
    }
    let AnyArray::Opaque(f4) = &arrays["f4"] else {
        panic!("{:?}", arrays["f4"]);
    };
    assert_eq!((f4.dtype(), f4.shape()), (Dtype::F4, &[2, 2][..]));
    assert_eq!(f4.clone().into_bytes(), [0x21, 0x43]);
}

#[test]
fn the_last_dimension_lies_together() {
    let bytes: Vec<u8> = (0..24).collect();
    let written = Written::new(&[of_bytes("a", Dtype::U8, &[2, 3, 4], &bytes)]);
    let loaded = written.load("a").unwrap().into_array::<u8>().unwrap();
    let mapped = written.map("a").array::<u8>().unwrap();
    for array in [&*loaded, &*mapped] {
        assert_eq!(array.strides(), [12, 4, 1]);
        assert_eq!(array[[1, 2, 3]], 23);
        assert_eq!(array[[1, 0, 2]], 14);
    }
}

#[test]
fn rank_0_and_empty_arrays() {
    // The first byte leaves all others unaligned.
    let written = Written::new(&[
        Tensor::new("byte", Dtype::U8, &[1]),
        of_bytes("scalar", Dtype::I16, &[], &[0x34, 0x12]),
        Tensor::new("empty", Dtype::F64, &[3, 0, 2]),
        Tensor::new("no bool", Dtype::Bool, &[0]),
    ]);
    let scalar = written.load("scalar").unwrap();
    assert_eq!(scalar.as_array::<i16>().unwrap()[IxDyn(&[])], 0x1234);
    assert_eq!(written.map("scalar").array::<i16>().unwrap()[[]], 0x1234);

    let empty = written.load("empty").unwrap();
    assert_eq!((empty.dtype(), empty.shape()), (Dtype::F64, &[3, 0, 2][..]));
    // Without elements there are none that are not aligned.
    let empty = written.map("empty");
    assert_eq!(empty.view::<f64>().unwrap().shape(), [3, 0, 2]);
    assert!(empty.array::<f64>().unwrap().is_mapped());
    assert!(written.map("no bool").view::<bool>().unwrap().is_empty());
}

#[test]
fn another_type_than_the_tensors() {
    let written = Written::new(&[Tensor::new("weight", Dtype::BF16, &[2])]);
    for error in written.refusals::<f16>("weight") {
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        let message = error.to_string();
        assert!(
            message.contains("dtype is BF16, asked for as F16"),
            "{message}"
        );
    }
    // What Rust has no type for is nothing else either.
    let written = Written::new(&[Tensor::new("scale", Dtype::F8E8M0, &[2])]);
    written.refusals::<u8>("scale");
    assert_eq!(written.map("scale").bytes().len(), 2);
}

#[test]
fn bool_is_0_or_1() {
    let written = Written::new(&[
        of_bytes("mask", Dtype::Bool, &[2, 2], &[0, 1, 2, 255]),
        of_bytes("fine", Dtype::Bool, &[2], &[0, 1]),
    ]);
    let all = load_into_ndarray(&written.path).unwrap_err();
    assert_eq!(all.path(), Some(&*written.path));
    for error in written.refusals::<bool>("mask").iter().chain([&all]) {
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert_eq!(error.tensor(), Some("mask"));
        let message = error.to_string();
        assert!(
            message.contains("element 2 is 2, BOOL is 0 or 1"),
            "{message}"
        );
    }
    assert_eq!(written.load("fine").unwrap(), array![false, true].into());
    let as_bytes = Loader::new(NdArray).cast(|_| Some(Dtype::U8));
    let as_bytes = as_bytes.load(&written.path).unwrap();
    assert_eq!(as_bytes["mask"], array![[0_u8, 1], [2, 255]].into());
}

#[test]
fn a_shape_that_ndarray_cannot_have() {
    let large = 1 << 40;
    let written = Written::new(&[Tensor::new("strange", Dtype::F32, &[0, large, large])]);
    for error in written.refusals::<f32>("strange") {
        assert_eq!(error.kind(), ErrorKind::Framework);
        assert_eq!(error.tensor(), Some("strange"));
        assert!(error.to_string().contains("ndarray: "), "{error}");
    }
}

#[test]
fn one_bad_tensor_is_no_hindrance_to_others() {
    let written = Written::new(&[
        of_bytes("bad", Dtype::Bool, &[1], &[7]),
        of_bytes("good", Dtype::U8, &[1], &[7]),
    ]);
    let checkpoint = Checkpoint::open(&written.path).unwrap();
    let good = Loader::new(NdArray).load_tensor(&checkpoint, "good");
    assert_eq!(good.unwrap(), array![7_u8].into());
    let arrays = Loader::new(NdArray).filter(|name| name != "bad");
    assert_eq!(arrays.load(&written.path).unwrap().len(), 1);
}

#[test]
fn what_may_be_large_prints_without_its_data() {
    let written = Written::new(&[Tensor::new("weight", Dtype::F4, &[2, 1000])]);
    let printed = format!(
        "{:?} {:?}",
        written.map("weight"),
        written.load("weight").unwrap()
    );
    assert!(printed.contains("F4") && printed.len() < 300, "{printed}");
}
