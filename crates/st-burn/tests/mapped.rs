//! Mapped tensors are the file itself, in burn-flex as well, wherever they can be.

use std::path::Path;

use burn::tensor::{DType, Device, Int, Tensor, shape};
use burn_flex::FlexTensor;
use st_burn::{TensorData, load_into_burn, map_into_burn};
use st_conformance::file::{self, Tensor as Written};
use st_format::{Dtype, ErrorKind};

type Tensors = std::collections::HashMap<String, TensorData>;

fn map(path: &Path) -> Tensors {
    // SAFETY: the file is in a directory of the test's own, which only writes it before.
    unsafe { map_into_burn(path) }.unwrap()
}

fn start(data: &TensorData) -> *const u8 {
    data.as_bytes().as_ptr()
}

/// As a file in which every tensor is aligned.
fn write(dir: &Path, tensors: &[Written]) -> std::path::PathBuf {
    let mut bytes = file::file(tensors);
    let header_len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let padding = (8 + header_len).next_multiple_of(8) - (8 + header_len);
    bytes.splice(8 + header_len..8 + header_len, vec![b' '; padding]);
    bytes[..8].copy_from_slice(&((header_len + padding) as u64).to_le_bytes());
    let path = dir.join("aligned.safetensors");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn tensors_are_places_of_one_map() {
    let dtypes = [
        Dtype::F64,
        Dtype::I64,
        Dtype::U64,
        Dtype::F32,
        Dtype::I32,
        Dtype::U32,
        Dtype::F16,
        Dtype::BF16,
        Dtype::I16,
        Dtype::U16,
        Dtype::I8,
        Dtype::U8,
        Dtype::Bool,
    ];
    let tensors = dtypes.map(|dtype| Written::new(dtype.name(), dtype, &[4, 6]));
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &tensors);
    let mapped = map(&path);
    let mut expected = start(&mapped["F64"]);
    for tensor in &tensors {
        // As in the file, each begins where the one before ends.
        assert_eq!(start(&mapped[&tensor.name]), expected, "{}", tensor.name);
        expected = expected.wrapping_add(tensor.bytes.len());
    }
    assert_eq!(mapped, load_into_burn(&path).unwrap());
}

#[test]
fn burn_flex_keeps_the_place_and_the_dtype() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(
        dir.path(),
        &[
            Written::new("ids", Dtype::I64, &[6]),
            Written::new("weight", Dtype::BF16, &[4, 6]),
        ],
    );
    let mut mapped = map(&path);
    let device = Device::flex();

    let data = mapped.remove("weight").unwrap();
    let place = start(&data);
    let weight = Tensor::<2>::from_data(data, (&device, DType::BF16));
    assert_eq!(weight.dtype(), DType::BF16);
    // burn gives a tensor's own data back without a copy while nobody shares it.
    assert_eq!(start(&weight.into_data()), place);

    let data = mapped.remove("ids").unwrap();
    let place = start(&data);
    let ids = Tensor::<1, Int>::from_data(data, (&device, DType::I64));
    assert_eq!(start(&ids.into_data()), place);
}

#[test]
fn flex_tensors_point_into_the_map_and_writes_copy() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &[Written::new("weight", Dtype::F32, &[4, 6])]);
    let before = std::fs::read(&path).unwrap();
    let data = map(&path).remove("weight").unwrap();
    let place = start(&data);
    let tensor = FlexTensor::from_data(data);
    assert_eq!(tensor.bytes().as_ptr(), place);

    let mut data = tensor.into_data();
    data.as_mut_slice::<f32>().unwrap().fill(1.0);
    assert_ne!(start(&data), place);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn what_is_misaligned_or_widened_is_copied_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(
        dir.path(),
        &[
            Written::new("aligned", Dtype::F32, &[8]),
            Written::new("widened", Dtype::F8E4M3, &[8]),
            Written::new("shift", Dtype::U8, &[1]),
            Written::new("misaligned", Dtype::F32, &[8]),
            Written::new("empty", Dtype::F64, &[0, 3]),
            Written::new("bytes", Dtype::I8, &[7]),
        ],
    );
    let mapped = map(&path);
    assert_eq!(mapped, load_into_burn(&path).unwrap());
    assert_eq!(mapped["widened"].dtype(), DType::F16);
    assert_eq!(*mapped["empty"].shape(), shape![0, 3]);

    let in_file = |name: &str| start(&mapped[name]).addr() - start(&mapped["aligned"]).addr();
    assert_eq!(in_file("shift"), 40);
    assert_eq!(in_file("bytes"), 73);
    for name in ["misaligned", "widened", "empty"] {
        let alignment = mapped[name].dtype().size();
        assert_eq!(start(&mapped[name]).addr() % alignment, 0, "{name}");
    }
    assert_ne!(
        start(&mapped["misaligned"]).addr(),
        start(&mapped["aligned"]).addr() + 41
    );
}

#[test]
fn a_map_outlives_its_checkpoint_and_its_neighbours() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = [
        Written::new("a", Dtype::F32, &[64, 64]),
        Written::new("b", Dtype::F32, &[64, 64]),
    ];
    let path = write(dir.path(), &tensors);
    let b = map(&path).remove("b").unwrap();
    assert_eq!(b.as_bytes(), tensors[1].bytes);
}

#[test]
fn a_dtype_burn_lacks_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &[Written::new("packed", Dtype::F4, &[8])]);
    // SAFETY: as in `map`.
    let error = unsafe { map_into_burn(&path) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.tensor(), Some("packed"));
}
