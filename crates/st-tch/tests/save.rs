//! What is saved is what the tensors hold, whatever they look like in memory.

use st_format::{Checkpoint, Dtype, ErrorKind};
use st_tch::{Saver, load_into_tch, save_from_tch, to_tch};
use tch::{Device, Kind, Tensor};

fn saved(tensor: &Tensor) -> Tensor {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    save_from_tch(&path, [("tensor", tensor)]).unwrap();
    load_into_tch(&path, Device::Cpu)
        .unwrap()
        .remove("tensor")
        .unwrap()
}

fn bytes(tensor: &Tensor) -> Vec<u8> {
    let mut bytes = vec![0; tensor.numel() * tensor.kind().elt_size_in_bytes()];
    tensor.copy_data_u8(&mut bytes, tensor.numel());
    bytes
}

#[test]
fn every_kind_there_and_back() {
    for &dtype in Dtype::ALL {
        let Some(kind) = to_tch(dtype) else { continue };
        let all = (0..=255_u8).cycle().take(4096).collect::<Vec<_>>();
        let all = match kind {
            Kind::Bool => all.iter().map(|byte| byte % 2).collect(),
            _ => all,
        };
        let tensor = Tensor::from_slice(&all).view([16, -1]).view_dtype(kind);
        for tensor in [
            tensor.shallow_clone(),
            tensor.transpose(0, 1),
            tensor.narrow(1, 3, 5),
        ] {
            let back = saved(&tensor);
            assert_eq!((back.kind(), back.size()), (kind, tensor.size()), "{dtype}");
            assert_eq!(bytes(&back), bytes(&tensor), "{dtype}");
        }
        assert_eq!(saved(&tensor.narrow(0, 0, 0)).size()[0], 0, "{dtype}");
    }
    assert_eq!(saved(&Tensor::from(2.5_f32)).size(), [0_i64; 0]);
}

#[test]
fn more_than_a_block_at_a_time() {
    let tensor = Tensor::arange(1_000_003, (Kind::Int64, Device::Cpu));
    assert_eq!(saved(&tensor), tensor);
    assert_eq!(saved(&tensor.flip([0])), tensor.flip([0]));
    let broadcast = Tensor::from_slice(&[1_i16, 2])
        .unsqueeze(1)
        .expand([2, 300_000], false);
    assert_eq!(saved(&broadcast), broadcast);
}

#[test]
fn pending_conjugation_and_negation_are_done() {
    let parts = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0]);
    let complex = parts.view([2, 2]).view_as_complex();
    let conjugated = bytes(&saved(&complex.conj()));
    assert_eq!(
        conjugated,
        [1.0_f32, -2.0, 3.0, -4.0].map(f32::to_le_bytes).concat()
    );
    let negated = bytes(&saved(&complex.conj().imag()));
    assert_eq!(negated, [-2.0_f32, -4.0].map(f32::to_le_bytes).concat());
}

#[test]
fn tensors_that_require_gradients() {
    let tensor = Tensor::ones([3], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    assert_eq!(
        saved(&tensor),
        Tensor::ones([3], (Kind::Float, Device::Cpu))
    );
    assert!(tensor.requires_grad());
    assert_eq!(saved(&(&tensor * 2)).double_value(&[2]), 2.0);
}

#[test]
fn what_cannot_be_saved_is_an_error_and_the_old_file_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    let good = Tensor::ones([2], (Kind::Float, Device::Cpu));
    save_from_tch(&path, [("good", &good)]).unwrap();
    let before = std::fs::read(&path).unwrap();
    let wide = good.to_kind(Kind::ComplexDouble);
    let sparse = Tensor::eye(3, (Kind::Float, Device::Cpu)).to_sparse(None, None::<i64>, None);
    let compressed = sparse.to_sparse_csr(None);
    let undefined = Tensor::new();
    for (bad, kind) in [
        (&wide, ErrorKind::Unsupported),
        (&sparse, ErrorKind::Framework),
        (&compressed, ErrorKind::Framework),
        (&undefined, ErrorKind::Framework),
    ] {
        let error = save_from_tch(&path, [("good", &good), ("bad", bad)]).unwrap_err();
        assert_eq!(
            (error.kind(), error.tensor()),
            (kind, Some("bad")),
            "{error}"
        );
        assert_eq!(error.path(), Some(&*path), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    let error = save_from_tch(&path, [("good", &good), ("good", &good)]).unwrap_err();
    assert_eq!(
        (error.kind(), error.tensor()),
        (ErrorKind::InvalidRequest, Some("good"))
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn tch_itself_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    let tensor = Tensor::arange(6, (Kind::Float, Device::Cpu)).view([2, 3]);
    save_from_tch(&path, [("model.weight", &tensor)]).unwrap();
    let [(name, read)] = &*Tensor::read_safetensors(&path).unwrap() else {
        panic!("not one tensor")
    };
    assert_eq!((&**name, read), ("model.weight", &tensor));
    assert_eq!(Checkpoint::open(&path).unwrap().len(), 1);
}

#[test]
fn the_same_view_is_saved_once_and_others_on_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    let embedding = Tensor::arange(36, (Kind::Float, Device::Cpu)).view([6, 6]);
    let complex = embedding.view([6, 3, 2]).view_as_complex();
    let tensors = [
        ("a.same", embedding.shallow_clone()),
        ("b.same", embedding.detach().view([6, 6])),
        ("c.transposed", embedding.transpose(0, 1)),
        ("d.reshaped", embedding.view([4, 9])),
        ("e.first", embedding.narrow(0, 0, 3)),
        ("f.overlapping", embedding.narrow(0, 1, 3)),
        ("g.copied", embedding.copy()),
        ("h.empty", embedding.narrow(0, 0, 0)),
        ("i.empty", embedding.narrow(0, 0, 0)),
        ("j.complex", complex.shallow_clone()),
        ("k.conjugated", complex.conj()),
    ];
    let report = Saver::new()
        .save(&path, tensors.iter().map(|(name, tensor)| (name, tensor)))
        .unwrap();
    assert_eq!(report.aliases, [("b.same".to_owned(), "a.same".to_owned())]);
    let loader = st_tch::Loader::new(Device::Cpu).resolve_aliases();
    let loaded = loader.load(&path).unwrap();
    assert_eq!(loaded.len(), tensors.len());
    assert_eq!(loaded["a.same"].data_ptr(), loaded["b.same"].data_ptr());
    for (name, tensor) in &tensors {
        assert_eq!(loaded[*name].size(), tensor.size(), "{name}");
        let resolved = tensor.resolve_conj().contiguous();
        assert_eq!(bytes(&loaded[*name]), bytes(&resolved), "{name}");
    }
}
