//! Variables are loaded in place, and saved for PyTorch and for tch's own loader.

use std::path::PathBuf;

use st_conformance::file::{self, Tensor as InFile};
use st_format::{Dtype, ErrorKind};
use st_tch::{export_var_store, load_into_tch, load_into_var_store, save_from_tch};
use tch::nn::{self, Module, OptimizerConfig, VarStore};
use tch::{Device, Kind, Tensor};

struct Model {
    store: VarStore,
    net: nn::Sequential,
}

impl Model {
    fn new() -> Model {
        let store = VarStore::new(Device::Cpu);
        let root = store.root();
        let net = nn::seq()
            .add(nn::linear(&root / "0", 3, 4, nn::LinearConfig::default()))
            .add_fn(|x| x.tanh())
            .add(nn::linear(&root / "2", 4, 2, nn::LinearConfig::default()));
        Model { store, net }
    }

    fn variable(&self, name: &str) -> Tensor {
        self.store.variables().remove(name).unwrap()
    }

    /// Copies of all values, by name.
    fn values(&self) -> Vec<(String, Tensor)> {
        let mut values: Vec<_> = self
            .store
            .variables()
            .into_iter()
            .map(|(name, variable)| (name, variable.detach().copy()))
            .collect();
        values.sort_by(|(a, _), (b, _)| a.cmp(b));
        values
    }
}

fn in_a_file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    (dir, path)
}

const NAMES: [&str; 4] = ["0.bias", "0.weight", "2.bias", "2.weight"];

#[test]
fn there_and_back() {
    let (_dir, path) = in_a_file();
    let (saved, mut model) = (Model::new(), Model::new());
    export_var_store(&path, &saved.store).unwrap();
    let before: Vec<_> = NAMES.map(|name| model.variable(name).data_ptr()).into();
    let report = load_into_var_store(&path, &mut model.store).unwrap();
    assert_eq!(report.loaded, NAMES);
    report.strict().unwrap();
    assert_eq!(model.values(), saved.values());
    let after: Vec<_> = NAMES.map(|name| model.variable(name).data_ptr()).into();
    assert_eq!(after, before, "the variables lie elsewhere now");
    assert!(
        NAMES
            .iter()
            .all(|name| model.variable(name).requires_grad())
    );
}

#[test]
fn tch_s_own_loader_reads_what_is_exported() {
    let (_dir, path) = in_a_file();
    let (saved, mut model) = (Model::new(), Model::new());
    export_var_store(&path, &saved.store).unwrap();
    model.store.load(&path).unwrap();
    assert_eq!(model.values(), saved.values());
}

/// Written by `tests/data/make_module.py`, with the module's answer to `input`.
#[test]
fn what_pytorch_wrote_for_the_same_module() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/");
    let mut model = Model::new();
    let module = format!("{data}module.safetensors");
    load_into_var_store(module, &mut model.store)
        .unwrap()
        .strict()
        .unwrap();
    let answer = load_into_tch(format!("{data}answer.safetensors"), Device::Cpu).unwrap();
    let output = model.net.forward(&answer["input"]);
    assert!(
        output.allclose(&answer["output"], 1e-6, 1e-6, false),
        "{output:?}"
    );
}

#[test]
fn an_optimiser_goes_on_with_the_values_loaded() {
    let (_dir, path) = in_a_file();
    let (saved, mut model) = (Model::new(), Model::new());
    export_var_store(&path, &saved.store).unwrap();
    let mut optimiser = nn::Sgd::default().build(&model.store, 1.0).unwrap();
    load_into_var_store(&path, &mut model.store)
        .unwrap()
        .strict()
        .unwrap();

    let loss = model
        .net
        .forward(&Tensor::ones([1, 3], (Kind::Float, Device::Cpu)));
    optimiser.backward_step(&loss.sum(Kind::Float));
    // The gradient of the last bias is one.
    let stepped = saved.variable("2.bias").detach() - 1.0;
    assert_eq!(model.variable("2.bias").detach(), stepped);
    let differs = model
        .variable("0.weight")
        .detach()
        .ne_tensor(&saved.variable("0.weight"));
    assert!(bool::try_from(differs.any()).unwrap());
}

#[test]
fn a_backward_pass_that_needs_the_old_values_is_an_error() {
    let (_dir, path) = in_a_file();
    let mut model = Model::new();
    export_var_store(&path, &model.store).unwrap();
    let weight = model.variable("2.weight");
    let squares = (&weight * &weight).sum(Kind::Float);
    load_into_var_store(&path, &mut model.store)
        .unwrap()
        .strict()
        .unwrap();
    let error = squares.f_backward().unwrap_err().to_string();
    assert!(
        error.contains("modified by an inplace operation"),
        "{error}"
    );
}

#[test]
fn what_only_one_of_them_has() {
    let (_dir, path) = in_a_file();
    let (saved, mut model) = (Model::new(), Model::new());
    let bias = saved.variable("0.bias");
    let (y, z) = (bias.copy(), bias.copy());
    save_from_tch(&path, [("0.bias", &bias), ("z", &z), ("y", &y)]).unwrap();
    let before = model.values();
    let report = load_into_var_store(&path, &mut model.store).unwrap();
    assert_eq!(report.loaded, ["0.bias"]);
    assert_eq!(report.missing, ["0.weight", "2.bias", "2.weight"]);
    assert_eq!(report.unexpected, ["y", "z"]);
    assert!(report.mismatched.is_empty());
    assert_eq!(model.variable("0.bias").detach(), bias.detach());
    assert_eq!(model.values()[1..], before[1..]);

    let error = report.strict().unwrap_err();
    assert_eq!(
        (error.kind(), error.path()),
        (ErrorKind::NotFound, Some(&*path))
    );
    assert!(
        error
            .to_string()
            .ends_with(r#"no tensor for "0.weight", "2.bias", "2.weight""#),
        "{error}"
    );
}

#[test]
fn a_tensor_without_a_variable_is_strictly_an_error() {
    let (_dir, path) = in_a_file();
    let mut model = Model::new();
    let extra = Tensor::ones([1], (Kind::Float, Device::Cpu));
    let mut tensors = model.values();
    tensors.push(("extra".to_owned(), extra));
    save_from_tch(&path, tensors).unwrap();
    let error = load_into_var_store(&path, &mut model.store)
        .unwrap()
        .strict()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(
        error.to_string().ends_with(r#"no variable for "extra""#),
        "{error}"
    );
}

#[test]
fn where_something_does_not_fit_nothing_is_changed() {
    let (_dir, path) = in_a_file();
    let (saved, mut model) = (Model::new(), Model::new());
    let mut tensors = saved.values();
    tensors[1].1 = tensors[1].1.transpose(0, 1);
    tensors[3].1 = tensors[3].1.to_kind(Kind::Int64);
    save_from_tch(&path, tensors).unwrap();
    let before = model.values();
    let report = load_into_var_store(&path, &mut model.store).unwrap();
    assert_eq!(model.values(), before);
    assert!(report.loaded.is_empty() && report.missing.is_empty());
    let reasons: Vec<_> = report
        .mismatched
        .iter()
        .map(|mismatch| mismatch.reason.to_string())
        .collect();
    let of = |name: &str, reason: &str| format!("{}: tensor \"{name}\": {reason}", path.display());
    assert_eq!(
        reasons,
        [
            of("0.weight", "shape is [3, 4], the variable's is [4, 3]"),
            of("2.weight", "dtype is I64, the variable's is F32"),
        ]
    );
    assert_eq!(report.mismatched[0].name, "0.weight");
    let error = report.strict().unwrap_err();
    assert_eq!(
        (error.kind(), error.tensor()),
        (ErrorKind::InvalidRequest, Some("0.weight"))
    );
}

#[test]
fn variables_keep_their_kind() {
    for (kind, dtype) in [(Kind::Half, Dtype::F16), (Kind::BFloat16, Dtype::BF16)] {
        let (dir, path) = in_a_file();
        let (saved, mut model) = (Model::new(), Model::new());
        model.store.set_kind(kind);
        // Rounded on the way from F32 to a narrower variable.
        export_var_store(&path, &saved.store).unwrap();
        load_into_var_store(&path, &mut model.store)
            .unwrap()
            .strict()
            .unwrap();
        for name in NAMES {
            assert_eq!(
                model.variable(name),
                saved.variable(name).to_kind(kind),
                "{name}"
            );
        }
        // And there and back as it is, or widened.
        let path = dir.path().join("narrow.safetensors");
        export_var_store(&path, &model.store).unwrap();
        let checkpoint = st_format::Checkpoint::open(&path).unwrap();
        assert!(checkpoint.iter().all(|info| info.dtype() == dtype));
        let mut wide = Model::new();
        load_into_var_store(&path, &mut wide.store)
            .unwrap()
            .strict()
            .unwrap();
        assert_eq!(wide.variable("0.weight").kind(), Kind::Float);
        assert_eq!(
            wide.variable("0.weight").to_kind(kind),
            model.variable("0.weight")
        );
    }
}

#[test]
fn variables_that_cannot_be_read_into_are_copied_to() {
    let dir = tempfile::tempdir().unwrap();
    let four = |name: &str, first: f32| {
        let bytes = [first, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat();
        InFile::new(name, Dtype::F32, &[2, 2]).with_bytes(bytes)
    };
    let tensors = [
        four("transposed", 1.0),
        four("tied", 5.0),
        four("tied too", 5.0),
        InFile::new("mask", Dtype::Bool, &[2]).with_bytes(vec![0, 1]),
        InFile::new("empty", Dtype::F32, &[0]),
        InFile::new("scalar", Dtype::F64, &[]).with_bytes(2.5_f64.to_le_bytes().to_vec()),
    ];
    let path = file::write(dir.path(), "model.safetensors", &tensors);

    let mut store = VarStore::new(Device::Cpu);
    let float = (Kind::Float, Device::Cpu);
    let tied = Tensor::zeros([2, 2], float);
    let variables = [
        ("transposed", Tensor::zeros([2, 2], float).transpose(0, 1)),
        ("tied", tied.shallow_clone()),
        ("tied too", tied),
        ("mask", Tensor::zeros([2], (Kind::Bool, Device::Cpu))),
        ("empty", Tensor::zeros([0], float)),
        (
            "scalar",
            Tensor::zeros(&[] as &[i64], (Kind::Double, Device::Cpu)),
        ),
    ];
    for (name, variable) in variables {
        let mut all = store.variables_.lock().unwrap();
        all.named_variables.insert(name.to_owned(), variable);
    }
    let report = load_into_var_store(&path, &mut store).unwrap();
    assert_eq!(report.loaded.len(), tensors.len());
    report.strict().unwrap();
    let variables = store.variables();
    for (name, tensor) in load_into_tch(&path, Device::Cpu).unwrap() {
        assert_eq!(variables[&name], tensor, "{name}");
    }
}

#[test]
fn from_shards() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::new();
    let tensors = NAMES.map(|name| {
        let shape: Vec<_> = model
            .variable(name)
            .size()
            .iter()
            .map(|&dim| dim as usize)
            .collect();
        let elements = shape.iter().product::<usize>();
        let bytes = (0..elements)
            .flat_map(|at| (at as f32).to_le_bytes())
            .collect();
        InFile::new(name, Dtype::F32, &shape).with_bytes(bytes)
    });
    file::write_sharded(dir.path(), &[&tensors[..1], &tensors[1..]]);
    load_into_var_store(dir.path(), &mut model.store)
        .unwrap()
        .strict()
        .unwrap();
    assert_eq!(model.variable("0.weight").double_value(&[3, 2]), 11.0);
}

#[test]
fn tied_variables_are_saved_once_and_loaded_both() {
    let (_dir, path) = in_a_file();
    let store_of = |value: f64| {
        let store = VarStore::new(Device::Cpu);
        let embedding = store.root().zeros("wte", &[4, 3]);
        let _no_grad = tch::no_grad_guard();
        let _ = embedding.shallow_clone().fill_(value);
        (store, embedding)
    };
    let (store, embedding) = store_of(2.5);
    let tied = [("wte", &embedding), ("lm_head", &embedding)];
    save_from_tch(&path, tied).unwrap();

    // A store with both, each with memory of its own.
    let (mut both, wte) = store_of(0.0);
    let lm_head = both.root().zeros("lm_head", &[4, 3]);
    let report = load_into_var_store(&path, &mut both).unwrap();
    assert_eq!(report.loaded, ["lm_head", "wte"]);
    report.strict().unwrap();
    assert_eq!((&wte, &lm_head), (&embedding, &embedding));

    // A store that knows only the name that was not kept.
    let (mut one, wte) = store_of(0.0);
    load_into_var_store(&path, &mut one)
        .unwrap()
        .strict()
        .unwrap();
    assert_eq!(wte, embedding);
    drop(store);
}

#[test]
fn variables_tied_in_the_store() {
    let (_dir, path) = in_a_file();
    let tied_store = |value: f64| {
        let store = VarStore::new(Device::Cpu);
        let embedding = store.root().zeros("wte", &[4, 3]);
        // As tying is done with tch: a second name for the same variable.
        store
            .variables_
            .lock()
            .unwrap()
            .named_variables
            .insert("lm_head".to_owned(), embedding.shallow_clone());
        let _no_grad = tch::no_grad_guard();
        let _ = embedding.shallow_clone().fill_(value);
        (store, embedding)
    };
    let (store, embedding) = tied_store(1.5);
    export_var_store(&path, &store).unwrap();
    let loaded = load_into_tch(&path, Device::Cpu).unwrap();
    assert_eq!(loaded.keys().collect::<Vec<_>>(), ["lm_head"]);

    let (mut other, variable) = tied_store(0.0);
    let at = variable.data_ptr();
    load_into_var_store(&path, &mut other)
        .unwrap()
        .strict()
        .unwrap();
    assert_eq!(variable, embedding);
    assert_eq!(variable.data_ptr(), at);
    let variables = other.variables();
    assert_eq!(variables["wte"].data_ptr(), variables["lm_head"].data_ptr());
}
