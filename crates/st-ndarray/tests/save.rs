//! What is saved is what the arrays hold, whatever they look like in memory.

use st_conformance::file::{self, Tensor as InFile};
use st_format::{Checkpoint, Dtype, ErrorKind};
use st_ndarray::ndarray::{
    Array, Array3, ArrayView, Axis, Dimension, ShapeBuilder, arr0, array, s,
};
use st_ndarray::{
    AnyArray, Element, OpaqueArray, Savable, Saver, load_into_ndarray, map_into_ndarray,
    save_from_ndarray,
};

fn assert_saved<T: Element + PartialEq, D: Dimension>(array: ArrayView<T, D>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    save_from_ndarray(&path, [("array", &array)]).unwrap();
    let loaded = load_into_ndarray(&path).unwrap();
    assert_eq!(loaded["array"].as_array::<T>().unwrap(), &array.into_dyn());
}

#[test]
fn arrays_of_any_memory_layout() {
    let count_up: Array3<i32> = Array::from_iter(0..4 * 6 * 5)
        .into_shape_with_order((4, 6, 5))
        .unwrap();
    assert_saved(count_up.view());
    assert_saved(count_up.t());
    assert_saved(count_up.view().permuted_axes([1, 2, 0]));
    assert_saved(count_up.slice(s![1..3, ..;2, ..;-1]));
    assert_saved(count_up.slice(s![.., 2..2, ..]));
    assert_saved(count_up.index_axis(Axis(1), 3));
    let column = count_up.slice(s![.., .., 2..3]);
    assert_saved(column.broadcast((4, 6, 9)).unwrap());
    let column_major = Array::from_shape_fn((3, 4).f(), |(row, column)| row * 10 + column);
    assert_saved(column_major.mapv(|x| x as f64).view());
    assert_saved(arr0(2.5_f32).view());
    assert_saved(array![true, false, true].view().slice(s![..;-1]));
    // More than is gathered at once.
    let large = Array::from_shape_fn((300, 401), |(row, column)| (row * 401 + column) as u32);
    assert_saved(large.t());
}

#[test]
fn arrays_of_several_types_and_what_was_loaded_or_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let tensors: Vec<InFile> = Dtype::ALL
        .iter()
        .map(|&dtype| InFile::new(dtype.name(), dtype, &[2, 8]))
        .collect();
    let path = file::write(dir.path(), "model.safetensors", &tensors);
    let loaded = load_into_ndarray(&path).unwrap();
    // SAFETY: the file is this test's own; saving replaces it and does not write to it.
    let mapped = unsafe { map_into_ndarray(&path) }.unwrap();
    let floats = array![1.0_f32, 2.0];
    let mut arrays: Vec<(&str, &dyn Savable)> = vec![("floats", &floats)];
    arrays.extend(loaded.iter().map(|(name, array)| (&**name, array as _)));
    let of_map: Vec<_> = mapped
        .iter()
        .map(|(name, tensor)| (format!("mapped.{name}"), tensor))
        .collect();
    arrays.extend(of_map.iter().map(|(name, tensor)| (&**name, *tensor as _)));
    // Over the very file that is mapped.
    save_from_ndarray(&path, arrays).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.len(), 2 * tensors.len() + 1);
    for tensor in &tensors {
        for name in [tensor.name.clone(), format!("mapped.{}", tensor.name)] {
            assert_eq!(checkpoint.info(&name).unwrap().dtype(), tensor.dtype);
            assert_eq!(checkpoint.read(&name).unwrap(), tensor.bytes, "{name}");
        }
    }
}

#[test]
fn views_of_the_same_elements_are_saved_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    let weight = array![[1.0_f32, 2.0], [3.0, 4.0]];
    let views = [
        ("b", weight.view()),
        ("a", weight.view()),
        ("t", weight.t()),
    ];
    let report = Saver::new().save(&path, views).unwrap();
    assert_eq!(report.aliases, [("b".to_owned(), "a".to_owned())]);
    assert_eq!(report.bytes, 32);
}

#[test]
fn an_opaque_array_is_as_long_as_its_shape_says() {
    let array = OpaqueArray::new(Dtype::F4, &[2, 3], vec![1, 2, 3]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    save_from_ndarray(&path, [("array", &array)]).unwrap();
    assert_eq!(
        load_into_ndarray(&path).unwrap()["array"],
        AnyArray::Opaque(array)
    );
    for (dtype, shape, len) in [
        (Dtype::F4, &[2, 3][..], 4),
        (Dtype::F4, &[3], 2),
        (Dtype::F8E8M0, &[usize::MAX, 2], 2),
        (Dtype::F32, &[1], 4),
    ] {
        let error = OpaqueArray::new(dtype, shape, vec![0; len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    }
}
