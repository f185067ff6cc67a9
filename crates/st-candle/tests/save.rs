//! What is saved is what the tensors hold, whatever they look like in memory.

use candle_core::{DType, Device, Tensor, Var};
use st_candle::{Saver, load_into_candle, save_from_candle};
use st_conformance::file::{self, Tensor as InFile};
use st_format::{Checkpoint, Dtype, ErrorKind};

fn saved(tensor: &Tensor) -> Tensor {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    save_from_candle(&path, [("tensor", tensor)]).unwrap();
    let mut loaded = load_into_candle(&path, &Device::Cpu).unwrap();
    loaded.remove("tensor").unwrap()
}

fn assert_saved(tensor: &Tensor) {
    let back = saved(tensor);
    assert_eq!((back.dtype(), back.dims()), (tensor.dtype(), tensor.dims()));
    let elements = |tensor: &Tensor| -> Vec<f64> {
        let wide = tensor.to_dtype(DType::F64).unwrap();
        wide.flatten_all().unwrap().to_vec1().unwrap()
    };
    assert_eq!(elements(&back), elements(tensor));
}

fn count_up(shape: &[usize], dtype: DType) -> Tensor {
    let len = shape.iter().product::<usize>() as u32;
    let tensor = Tensor::arange(0, len, &Device::Cpu).unwrap();
    tensor.to_dtype(dtype).unwrap().reshape(shape).unwrap()
}

#[test]
fn transposed_narrowed_and_broadcast_tensors() {
    for dtype in [DType::U8, DType::BF16, DType::F32, DType::I64] {
        let tensor = count_up(&[4, 6, 5], dtype);
        assert_saved(&tensor);
        assert_saved(&tensor.transpose(0, 2).unwrap());
        assert_saved(&tensor.permute((1, 2, 0)).unwrap());
        assert_saved(&tensor.narrow(0, 1, 2).unwrap());
        assert_saved(&tensor.narrow(2, 1, 3).unwrap());
        assert_saved(&tensor.narrow(1, 2, 0).unwrap());
        let column = tensor.narrow(2, 2, 1).unwrap();
        assert_saved(&column.broadcast_as((4, 6, 7)).unwrap());
        assert_saved(&column.squeeze(2).unwrap());
    }
    let large = count_up(&[1200, 701], DType::F32);
    assert_saved(&large.t().unwrap());
}

#[test]
fn variables_are_saved_as_their_tensors() {
    let variable = Var::zeros((2, 3), DType::F32, &Device::Cpu).unwrap();
    variable.set(&count_up(&[2, 3], DType::F32)).unwrap();
    assert_saved(variable.as_tensor());
}

#[test]
fn the_same_view_is_saved_once_and_others_on_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    let embedding = count_up(&[6, 6], DType::F32);
    let tensors = [
        ("a.same", embedding.clone()),
        ("b.same", embedding.reshape((6, 6)).unwrap()),
        ("c.transposed", embedding.t().unwrap()),
        ("d.reshaped", embedding.reshape((4, 9)).unwrap()),
        ("e.first", embedding.narrow(0, 0, 3).unwrap()),
        ("f.overlapping", embedding.narrow(0, 1, 3).unwrap()),
        ("g.first", embedding.narrow(0, 0, 3).unwrap()),
        ("h.copied", embedding.copy().unwrap()),
        ("i.empty", embedding.narrow(0, 0, 0).unwrap()),
        ("j.empty", embedding.narrow(0, 0, 0).unwrap()),
    ];
    let report = Saver::new().save(&path, tensors.clone()).unwrap();
    let aliases: Vec<_> = report
        .aliases
        .iter()
        .map(|(alias, kept)| (&**alias, &**kept))
        .collect();
    assert_eq!(aliases, [("b.same", "a.same"), ("g.first", "e.first")]);
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.len(), 8);
    let loaded = st_candle::Loader::new(&Device::Cpu)
        .resolve_aliases()
        .load(&path)
        .unwrap();
    for (name, tensor) in &tensors {
        let (found, expected) = (&loaded[*name], tensor.flatten_all().unwrap());
        assert_eq!(found.dims(), tensor.dims(), "{name}");
        let found = found.flatten_all().unwrap();
        assert_eq!(
            found.to_vec1::<f32>().unwrap(),
            expected.to_vec1::<f32>().unwrap(),
            "{name}"
        );
    }
}

#[test]
fn a_model_finds_the_tied_tensor_under_both_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    let embedding = count_up(&[6, 4], DType::F32);
    let tensors = [("wte.weight", &embedding), ("lm_head.weight", &embedding)];
    save_from_candle(&path, tensors).unwrap();
    let weights = st_candle::var_builder(&path, DType::F32, &Device::Cpu).unwrap();
    for name in ["wte.weight", "lm_head.weight"] {
        assert!(weights.contains_tensor(name));
        let tensor = weights.get((6, 4), name).unwrap();
        assert_eq!(
            tensor.to_vec2::<f32>().unwrap(),
            embedding.to_vec2::<f32>().unwrap()
        );
    }
    assert!(!weights.contains_tensor("format"));
}

#[test]
fn part_of_what_candle_only_keeps_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    let in_file = InFile::new("scale", Dtype::F4, &[4, 8]);
    let path_in = file::write(dir.path(), "in.safetensors", std::slice::from_ref(&in_file));
    let scale = &load_into_candle(&path_in, &Device::Cpu).unwrap()["scale"];
    save_from_candle(&path, [("scale", scale)]).unwrap();
    assert_eq!(
        Checkpoint::open(&path).unwrap().read("scale").unwrap(),
        in_file.bytes
    );

    let other = dir.path().join("part.safetensors");
    for part in [scale.narrow(0, 2, 2), scale.narrow(0, 0, 2), scale.t()] {
        let error = save_from_candle(&other, [("part", part.unwrap())]).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Framework),
            "{error}"
        );
        assert_eq!(
            (error.path(), error.tensor()),
            (Some(&*other), Some("part"))
        );
        assert!(!other.exists());
    }
}
