//! What is said to copy nothing does not: the elements stay where they are.

use std::path::{Path, PathBuf};
use std::thread;

use bytemuck::NoUninit;
use st_conformance::file::{self, Tensor};
use st_format::{Buffer, Dtype, ErrorKind, Framework, Memory, Part, SafeTensors};
use st_ndarray::float8::{F8E4M3, F8E5M2};
use st_ndarray::half::{bf16, f16};
use st_ndarray::ndarray::{ArrayRef, IxDyn};
use st_ndarray::num_complex::Complex;
use st_ndarray::{
    AnyArray, Element, MappedArray, MappedTensor, NdArray, load_into_ndarray, map_into_ndarray,
    view_as_ndarray,
};

const SHAPE: [usize; 2] = [3, 4];

/// Calls a function for every type that arrays can have as elements.
macro_rules! for_every_element {
    ($function:ident) => {
        $function::<bool>();
        $function::<u8>();
        $function::<i8>();
        $function::<u16>();
        $function::<i16>();
        $function::<u32>();
        $function::<i32>();
        $function::<u64>();
        $function::<i64>();
        $function::<F8E4M3>();
        $function::<F8E5M2>();
        $function::<f16>();
        $function::<bf16>();
        $function::<f32>();
        $function::<f64>();
        $function::<Complex<f32>>();
    };
}

/// A file with a tensor of `T`s whose data begins `past` bytes past a multiple of 16.
fn file_with<T: Element>(past: usize) -> (Vec<u8>, Tensor) {
    let tensor = Tensor::new("tensor", T::DTYPE, &SHAPE);
    let begins_right = |file: &Vec<u8>| (file.len() - tensor.bytes.len()) % 16 == past;
    let files = (0..64).map(|shift| {
        let before = Tensor::new("shift", Dtype::U8, &[shift]);
        file::file(&[before, tensor.clone()])
    });
    let file = files.into_iter().find(begins_right);
    (file.expect("a file with the data there"), tensor)
}

fn write(dir: &Path, file: &[u8]) -> PathBuf {
    let path = dir.join("model.safetensors");
    std::fs::write(&path, file).unwrap();
    path
}

fn map(path: &Path) -> MappedTensor {
    // SAFETY: the file lies in a directory of this test alone, which does not write to it again.
    let mut tensors = unsafe { map_into_ndarray(path) }.unwrap();
    tensors.remove("tensor").unwrap()
}

fn address<T>(array: &ArrayRef<T, IxDyn>) -> usize {
    array.as_ptr().addr()
}

fn assert_holds<T: Element + NoUninit>(array: &ArrayRef<T, IxDyn>, tensor: &Tensor) {
    assert_eq!(array.shape(), tensor.shape);
    let elements = array.as_slice().expect("a row-major array");
    assert_eq!(bytemuck::cast_slice::<T, u8>(elements), tensor.bytes);
}

#[test]
fn an_array_keeps_the_memory_that_was_read_into() {
    fn check<T: Element>() {
        let bytes = 12 * size_of::<T>() as u64;
        let mut memory = Buffer::new(T::DTYPE, bytes).unwrap();
        let begin = memory.bytes_mut().as_ptr().addr();
        memory.bytes_mut().fill(std::mem::MaybeUninit::new(0));
        // SAFETY: just written, all of it.
        unsafe { memory.assume_filled() };
        let part = Part {
            shape: SHAPE.as_slice().into(),
            bytes: 0..bytes,
        };
        let mut arrays = NdArray.tensors(memory, T::DTYPE, &[part]);
        let any = arrays.remove(0).unwrap();
        let array = any.into_array::<T>().unwrap();
        assert_eq!(address(&array), begin, "{}", T::DTYPE);
    }
    for_every_element!(check);
}

#[test]
fn a_view_lies_in_the_bytes_it_was_made_of() {
    fn check<T: Element + NoUninit>() {
        let (file, tensor) = file_with::<T>(0);
        let mut memory = vec![0_u128; file.len().div_ceil(16)];
        let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
        memory[..file.len()].copy_from_slice(&file);
        let tensors = SafeTensors::new(&memory[..file.len()]).unwrap();
        let view = view_as_ndarray::<T>(tensors.tensor("tensor").unwrap()).unwrap();
        assert_eq!(
            address(&view),
            memory[file.len() - tensor.bytes.len()..].as_ptr().addr()
        );
        assert_holds(&view, &tensor);
    }
    for_every_element!(check);
}

#[test]
fn a_mapped_array_lies_in_the_map_and_keeps_it() {
    fn check<T: Element + NoUninit>() {
        let dir = tempfile::tempdir().unwrap();
        let (file, expected) = file_with::<T>(0);
        let path = write(dir.path(), &file);
        let tensor = map(&path);
        let begin = tensor.bytes().as_ptr().addr();
        let array = tensor.array::<T>().unwrap();
        assert!(array.is_mapped());
        assert_eq!(address(&array), begin);
        assert_eq!(address(&tensor.view::<T>().unwrap()), begin);
        let clone = array.clone();
        assert_eq!(address(&clone), begin);
        // Nothing else is left of it, not even the file's name.
        drop((tensor, array, dir));
        let elsewhere = thread::spawn(move || {
            assert_holds(&clone, &expected);
            clone
        });
        assert_eq!(address(&elsewhere.join().unwrap()), begin);
    }
    for_every_element!(check);
}

#[test]
fn unaligned_data_is_copied_and_never_viewed() {
    fn check<T: Element + NoUninit>() {
        if align_of::<T>() == 1 {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (file, expected) = file_with::<T>(1);
        let path = write(dir.path(), &file);
        let tensor = map(&path);
        let error = tensor.view::<T>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misaligned);
        assert_eq!(
            (error.path(), error.tensor()),
            (Some(&*path), Some("tensor"))
        );

        let array = tensor.array::<T>().unwrap();
        assert!(!array.is_mapped());
        let clone = array.clone();
        assert_eq!(address(&clone), address(&array));
        drop((tensor, array, dir));
        assert_holds(&clone, &expected);

        // Whatever the address of the bytes, one of two neighbours is not aligned.
        let misaligned = [0, 1].map(|before| {
            let mut memory = vec![0; before];
            memory.extend(&file);
            let tensors = SafeTensors::new(&memory[before..]).unwrap();
            let view = view_as_ndarray::<T>(tensors.tensor("tensor").unwrap());
            view.is_err_and(|error| {
                (error.kind(), error.tensor()) == (ErrorKind::Misaligned, Some("tensor"))
            })
        });
        assert!(misaligned.contains(&true));
    }
    for_every_element!(check);
}

#[test]
fn nothing_is_copied_between_the_types_of_arrays() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &file_with::<f32>(0).0);
    let any = load_into_ndarray(path).unwrap().remove("tensor").unwrap();
    let begin = address(any.as_array::<f32>().unwrap());
    let array = any.into_array::<f32>().unwrap();
    assert_eq!(address(&array), begin);
    let any = AnyArray::from(array);
    assert_eq!(address(any.as_array::<f32>().unwrap()), begin);
}

#[test]
fn a_map_of_shards_holds_the_tensors_of_all() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = ["a", "b", "c"].map(|name| Tensor::new(name, Dtype::U8, &SHAPE));
    file::write_sharded(dir.path(), &[&tensors[..1], &tensors[1..]]);
    // SAFETY: as in `map`.
    let mapped = unsafe { map_into_ndarray(dir.path()) }.unwrap();
    assert_eq!(mapped.len(), tensors.len());
    for tensor in &tensors {
        assert_holds(&mapped[&tensor.name].array::<u8>().unwrap(), tensor);
    }
    let error = mapped["c"].array::<f32>().unwrap_err();
    let second = dir.path().join("model-00002-of-00002.safetensors");
    assert_eq!((error.path(), error.tensor()), (Some(&*second), Some("c")));
}

#[test]
fn arrays_and_tensors_go_to_other_threads() {
    fn check<T: Send + Sync + Clone>() {}
    check::<MappedTensor>();
    check::<MappedArray<f32>>();
    check::<AnyArray>();
}
