//! Checkpoints of several files: how tensors are distributed, what the index says, what becomes of
//! the checkpoint that was there. And one checkpoint saved as another.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use common::saved::{assert_holds, names_in, saver, snapshot, view, views};
use common::{Dir, Tensor, child, counting, rejected};
use proptest::prelude::*;
use st_format::{Checkpoint, Dtype, ErrorKind, TensorView, byte_size};

/// Three tensors of 100 bytes: by a limit of 100, 200 or 300 bytes so many shards.
fn tensors() -> Vec<Tensor> {
    ["a", "b", "c"]
        .map(|name| Tensor::bytes(name, 100))
        .to_vec()
}

fn save(path: &Path, limit: u64, tensors: &[Tensor]) -> Vec<String> {
    let report = saver().max_shard_size(limit).save(path, views(tensors));
    let files = report.unwrap().files;
    files
        .iter()
        .map(|file| file.file_name().unwrap().to_str().unwrap().to_owned())
        .collect()
}

fn index_in(dir: &Path) -> String {
    fs::read_to_string(dir.join("model.safetensors.index.json")).unwrap()
}

/// Which tensors each shard holds.
fn shards_of(path: &Path) -> Vec<Vec<String>> {
    let checkpoint = Checkpoint::open(path).unwrap();
    let shards = checkpoint.shards().iter();
    shards
        .map(|shard| {
            let names = shard.header().iter().map(|info| info.name().to_owned());
            names.collect()
        })
        .collect()
}

#[test]
fn shards_are_numbered_and_hold_no_more_than_the_limit() {
    let dir = Dir::new();
    for (limit, expected) in [
        (0, vec![vec!["a"], vec!["b"], vec!["c"]]),
        (99, vec![vec!["a"], vec!["b"], vec!["c"]]),
        (199, vec![vec!["a"], vec!["b"], vec!["c"]]),
        (200, vec![vec!["a", "b"], vec!["c"]]),
        (299, vec![vec!["a", "b"], vec!["c"]]),
    ] {
        let path = dir.join(limit.to_string());
        let files = save(&path, limit, &tensors());
        let count = expected.len();
        let mut names: Vec<String> = (1..=count)
            .map(|at| format!("model-{at:05}-of-{count:05}.safetensors"))
            .collect();
        names.push("model.safetensors.index.json".to_owned());
        assert_eq!(files, names);
        assert_eq!(names_in(&path), names);
        assert_eq!(shards_of(&path), expected);
        assert_holds(&path, &tensors());
    }
    for limit in [300, u64::MAX] {
        let path = dir.join(limit.to_string());
        assert_eq!(save(&path, limit, &tensors()), ["model.safetensors"]);
        assert_eq!(names_in(&path), ["model.safetensors"]);
    }
}

#[test]
fn a_tensor_larger_than_the_limit_is_alone() {
    let dir = Dir::new();
    let tensors = [("a", 10), ("b", 1000), ("c", 0), ("d", 10), ("e", 10)]
        .map(|(name, len)| Tensor::bytes(name, len));
    save(dir.path(), 20, &tensors);
    // The one of no bytes is in the way of nobody.
    let expected = [vec!["a"], vec!["b"], vec!["c", "d", "e"]];
    assert_eq!(shards_of(dir.path()), expected);
    assert_holds(dir.path(), &tensors);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn shards_are_the_same_whatever_the_order(
        tensors in common::text::tensors(),
        limit in 0..60_u64,
        seed: u64,
    ) {
        let dir = Dir::new();
        let mut shuffled = tensors.clone();
        common::text::Choices::new(seed).shuffle(&mut shuffled);
        save(&dir.join("given"), limit, &tensors);
        save(&dir.join("shuffled"), limit, &shuffled);
        prop_assert!(snapshot(&dir.join("given")) == snapshot(&dir.join("shuffled")));
        assert_holds(&dir.join("given"), &tensors);
        let checkpoint = Checkpoint::open(dir.join("given")).unwrap();
        for shard in checkpoint.shards() {
            let large = shard.header().iter().find(|info| info.byte_len() > limit);
            match large {
                Some(_) => prop_assert_eq!(shard.header().len(), 1),
                None => prop_assert!(shard.header().data_len() <= limit),
            }
        }
        prop_assert!(checkpoint.warnings().is_empty(), "{:?}", checkpoint.warnings());

        let given = saver().in_given_order().max_shard_size(limit);
        given.save(dir.join("in order"), views(&shuffled)).unwrap();
        assert_holds(&dir.join("in order"), &tensors);
        let report = given.save(dir.join("in order"), views(&shuffled)).unwrap();
        let mut in_order = Vec::new();
        for file in report.files.iter().filter(|file| file.extension().unwrap() != "json") {
            let header = st_format::Header::read(file).unwrap();
            in_order.extend(header.iter().filter(|info| info.byte_len() > 0).map(|info| info.name().to_owned()));
        }
        let with_bytes = shuffled.iter().filter(|tensor| !tensor.data.is_empty());
        let expected: Vec<String> = with_bytes.map(|tensor| tensor.name.clone()).collect();
        prop_assert_eq!(in_order, expected);
    }

    /// Python's `json.dumps(index, indent=2, sort_keys=True) + "\n"`.
    #[test]
    fn the_index_is_as_transformers_writes_it(
        names in proptest::collection::btree_set("[ -~]{0,12}", 2..9),
    ) {
        let dir = Dir::new();
        let tensors: Vec<Tensor> = names.iter().map(|name| Tensor::bytes(name, 7)).collect();
        save(dir.path(), 7, &tensors);
        let files = (1..=names.len())
            .map(|at| format!("model-{at:05}-of-{:05}.safetensors", names.len()));
        let weight_map: BTreeMap<&String, String> = names.iter().zip(files).collect();
        let index = serde_json::json!({
            "metadata": { "total_size": 7 * names.len() },
            "weight_map": weight_map,
        });
        let expected = serde_json::to_string_pretty(&index).unwrap() + "\n";
        prop_assert_eq!(index_in(dir.path()), expected);
    }
}

#[test]
fn the_index_is_escaped_as_python_does() {
    let dir = Dir::new();
    let tensors = ["\u{e9}\"\\\n\u{1}", "\u{7f}", "\u{1F980}"].map(|name| Tensor::bytes(name, 7));
    save(dir.path(), 7, &tensors);
    // `json.dumps` of Python 3.12 for the same names, in the order of their code points.
    let expected = r#"{
  "metadata": {
    "total_size": 21
  },
  "weight_map": {
    "\u007f": "model-00001-of-00003.safetensors",
    "\u00e9\"\\\n\u0001": "model-00002-of-00003.safetensors",
    "\ud83e\udd80": "model-00003-of-00003.safetensors"
  }
}
"#;
    assert_eq!(index_in(dir.path()), expected);
    assert_holds(dir.path(), &tensors);
}

#[test]
fn a_checkpoint_of_another_stem_is_replaced_under_its_own() {
    let dir = Dir::new();
    let named = dir.join("weights.safetensors.index.json");
    let report = saver()
        .max_shard_size(100)
        .save(&named, views(&tensors()))
        .unwrap();
    assert_eq!(report.files.last(), Some(&named));
    let before = names_in(dir.path());
    assert_eq!(before[0], "weights-00001-of-00003.safetensors");
    assert_eq!(save(dir.path(), 200, &tensors()).len(), 3);
    let names = [
        "weights-00001-of-00002.safetensors",
        "weights-00002-of-00002.safetensors",
        "weights.safetensors.index.json",
    ];
    assert_eq!(names_in(dir.path()), names);
    assert_eq!(
        save(dir.path(), u64::MAX, &tensors()),
        ["weights.safetensors"]
    );
    assert_eq!(names_in(dir.path()), ["weights.safetensors"]);
    // Without a limit, too, and by the name of the file with one.
    saver().save(dir.path(), views(&tensors())).unwrap();
    assert_eq!(names_in(dir.path()), ["weights.safetensors"]);
    assert_eq!(
        save(&dir.join("weights.safetensors"), 200, &tensors()),
        names
    );
    assert_eq!(names_in(dir.path()), names);
}

#[test]
fn files_of_the_old_checkpoint_go_and_others_stay() {
    let dir = Dir::new();
    let others = [
        "README.md",
        "config.json",
        "tokenizer.model",
        "adapter.safetensors",
        "model-1-of-9.safetensors",
        "model-00001-of-00009.bin",
        "model-ema-00001-of-00009.safetensors",
        "model-backup.safetensors",
        ".hidden.safetensors",
    ];
    for name in others {
        dir.write(name, name);
    }
    dir.write("shards/notes.txt", "");
    // An old checkpoint by another program: other names, some of them in a directory of their own.
    dir.shard("pytorch-1.safetensors", &["a"]);
    dir.shard("shards/2.safetensors", &["b"]);
    dir.index_of(&[
        ("a", "pytorch-1.safetensors"),
        ("b", "shards/2.safetensors"),
    ]);
    // Python looks for this one first, before any index; the other one a killed save has left.
    dir.shard("model.safetensors", &["z"]);
    dir.shard("model-00001-of-00009.safetensors", &["z"]);

    let mut files = save(dir.path(), 200, &tensors());
    assert_eq!(files.len(), 3);
    assert_holds(dir.path(), &tensors());
    let mut expected: Vec<String> = others.map(str::to_owned).to_vec();
    expected.append(&mut files);
    expected.push("shards".to_owned());
    expected.sort();
    assert_eq!(names_in(dir.path()), expected);
    assert_eq!(names_in(&dir.join("shards")), ["notes.txt"]);
    for name in others {
        assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), name);
    }
}

/// The same file can be named in several ways.
#[test]
fn a_new_shard_is_not_taken_for_an_old_one() {
    let new = [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ];
    for way in ["./", ".//./", "link/", "link/./link/"] {
        let dir = Dir::new();
        #[cfg(unix)]
        std::os::unix::fs::symlink(".", dir.join("link")).unwrap();
        dir.shard(new[0], &["a"]);
        dir.shard(new[1], &["b"]);
        let named = new.map(|name| format!("{way}{name}"));
        dir.index_of(&[("a", &named[0]), ("b", &named[1])]);
        save(dir.path(), 200, &tensors());
        assert_holds(dir.path(), &tensors());
        save(dir.path(), u64::MAX, &tensors());
        assert_holds(dir.path(), &tensors());
    }
}

/// An index may have come from anywhere: what lies elsewhere is not its to be removed.
#[cfg(unix)]
#[test]
fn nothing_outside_the_directory_is_removed() {
    let dir = Dir::new();
    let outside = dir.shard("outside/mine.safetensors", &["a"]);
    dir.shard("model/b.safetensors", &["b"]);
    std::os::unix::fs::symlink("../outside", dir.join("model/link")).unwrap();
    dir.index_of(&[("a", "link/mine.safetensors"), ("b", "b.safetensors")]);
    fs::rename(
        dir.join("model.safetensors.index.json"),
        dir.join("model/model.safetensors.index.json"),
    )
    .unwrap();
    let model = dir.join("model");
    assert_eq!(Checkpoint::open(&model).unwrap().len(), 2);
    save(&model, 200, &tensors());
    assert_holds(&model, &tensors());
    assert!(outside.exists());
    assert!(!model.join("b.safetensors").exists());
}

#[test]
fn files_that_are_no_tensors_are_not_removed() {
    let dir = Dir::new();
    dir.write("thesis.tex", "years of work");
    dir.shard("b.safetensors", &["b"]);
    dir.index_of(&[("a", "thesis.tex"), ("b", "b.safetensors")]);
    save(dir.path(), 200, &tensors());
    assert_holds(dir.path(), &tensors());
    assert!(dir.join("thesis.tex").exists());
    assert!(!dir.join("b.safetensors").exists());
}

#[test]
fn an_old_checkpoint_that_is_broken_can_be_replaced() {
    for limit in [200, u64::MAX] {
        // A shard is gone; the index is no index.
        let dir = Dir::new();
        save(dir.path(), 100, &tensors());
        fs::remove_file(dir.join("model-00002-of-00003.safetensors")).unwrap();
        save(dir.path(), limit, &tensors());
        assert_holds(dir.path(), &tensors());
        #[cfg(unix)]
        {
            let dir = Dir::new();
            save(dir.path(), 100, &tensors());
            let shard = dir.join("model-00002-of-00003.safetensors");
            fs::remove_file(&shard).unwrap();
            std::os::unix::fs::symlink("nowhere", &shard).unwrap();
            let files = save(dir.path(), limit, &tensors());
            assert_eq!(names_in(dir.path()), files);
        }
        let dir = Dir::new();
        dir.index("{}");
        save(dir.path(), limit, &tensors());
        assert_holds(dir.path(), &tensors());
    }
}

#[test]
fn a_directory_of_several_checkpoints_is_ambiguous() {
    let dir = Dir::new();
    dir.shard("a.safetensors", &["a"]);
    dir.shard("b.safetensors", &["b"]);
    let before = snapshot(dir.path());
    for limit in [100, u64::MAX] {
        let saved = saver()
            .max_shard_size(limit)
            .save(dir.path(), views(&tensors()));
        let error = rejected(saved, ErrorKind::Ambiguous, "several .safetensors files");
        assert_eq!(error.path(), Some(dir.path()));
        assert!(snapshot(dir.path()) == before);
    }
}

#[test]
fn names_that_no_shard_can_have_are_errors() {
    let dir = Dir::new();
    for (name, message) in [
        (".safetensors.index.json", "is empty"),
        ("a\nb.safetensors.index.json", "has control characters"),
    ] {
        let saved = saver()
            .max_shard_size(1)
            .save(dir.join(name), views(&tensors()));
        rejected(saved, ErrorKind::InvalidRequest, message);
    }
    assert!(names_in(dir.path()).is_empty());
}

#[test]
fn no_tensors_are_a_checkpoint_too() {
    let dir = Dir::new();
    for limit in [0, u64::MAX] {
        save(dir.path(), 100, &tensors());
        assert_eq!(save(dir.path(), limit, &[]), ["model.safetensors"]);
        assert_eq!(names_in(dir.path()), ["model.safetensors"]);
        assert!(Checkpoint::open(dir.path()).unwrap().is_empty());
    }
    let bytes = saver().write_to(Vec::new(), views(&[])).unwrap();
    assert_eq!(bytes, fs::read(dir.join("model.safetensors")).unwrap());
    assert_eq!(bytes, b"\x08\0\0\0\0\0\0\0{}      ");
}

#[test]
fn more_shards_than_files_may_be_open() {
    const TEST: &str = "more_shards_than_files_may_be_open";
    if let Some(dir) = child::task() {
        let tensors: Vec<Tensor> = (0..200)
            .map(|at| Tensor::bytes(&format!("{at:03}"), 8))
            .collect();
        let files = save(dir.as_ref(), 8, &tensors);
        assert_eq!(files.len(), 201);
        assert_eq!(names_in(dir.as_ref()), files);
        return;
    }
    let dir = Dir::new();
    let output = child::by_script(&[], "ulimit -n 64; exec \"$@\"", TEST, dir.path()).output();
    child::assert_passed(&output.unwrap());
    let names = names_in(dir.path());
    let shards = names.iter().filter(|name| name.ends_with(".safetensors"));
    assert_eq!(
        Checkpoint::open(dir.path()).unwrap().shards().len(),
        shards.count()
    );
}

/// Several ranks that save to one place by mistake.
#[test]
fn saves_at_once_do_not_mix_their_files() {
    let dir = Dir::new();
    let tensors_of = |rank: u8| {
        let mut tensors = tensors();
        for tensor in &mut tensors {
            tensor.data.fill(rank);
        }
        tensors
    };
    save(dir.path(), 100, &tensors());
    for _ in 0..10 {
        std::thread::scope(|scope| {
            for rank in 1..5 {
                let path = dir.path();
                scope.spawn(move || save(path, 100, &tensors_of(rank)));
            }
        });
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        let rank = checkpoint.read("a").unwrap()[0];
        assert_holds(dir.path(), &tensors_of(rank));
        assert_eq!(names_in(dir.path()).len(), 4);
    }
}

/// One checkpoint becomes another, by whatever way: the same tensors, metadata and aliases.
#[test]
fn a_checkpoint_can_be_resharded_and_merged() {
    let dir = Dir::new();
    let tied = Tensor::bytes("lm_head.weight", 90);
    let mut given = tensors();
    given.push(tied.clone());
    let mut all = views(&given);
    all.push(("wte.weight", view(&given[3]).1));
    let path = dir.join("model");
    let report = saver()
        .metadata("format", "pt")
        .metadata("note", "é\"\0")
        .max_shard_size(100)
        .save(&path, all)
        .unwrap();
    assert_eq!(
        report.aliases,
        [("wte.weight".into(), "lm_head.weight".into())]
    );
    let check = |path: &Path| {
        assert_holds(path, &given);
        let checkpoint = Checkpoint::open(path).unwrap();
        let expected = [
            ("format", "pt"),
            ("note", "é\"\0"),
            ("wte.weight", "lm_head.weight"),
        ];
        assert_eq!(checkpoint.metadata(), expected.into());
        assert_eq!(checkpoint.aliases(), [expected[2]].into());
        for shard in checkpoint.shards() {
            assert_eq!(shard.header().metadata().len(), 3);
        }
    };
    check(&path);
    // Onto its own path, then elsewhere, and back to what it was.
    let first = snapshot(&path);
    for limit in [200, u64::MAX, 50] {
        let checkpoint = Checkpoint::open(&path).unwrap();
        let resharded = saver()
            .max_shard_size(limit)
            .save_checkpoint(&path, &checkpoint);
        let names = resharded.unwrap().files.len();
        assert_eq!(names_in(&path).len(), names);
        check(&path);
        check_open(&checkpoint, &given);
    }
    let merged = dir.join("merged.safetensors");
    saver()
        .save_checkpoint(&merged, &Checkpoint::open(&path).unwrap())
        .unwrap();
    check(&merged);
    let again = dir.join("again");
    saver()
        .max_shard_size(100)
        .save_checkpoint(&again, &Checkpoint::open(&merged).unwrap())
        .unwrap();
    assert!(snapshot(&again) == first);
    // This saver's own words count.
    let other = saver().metadata("format", "np");
    other
        .save_checkpoint(&merged, &Checkpoint::open(&merged).unwrap())
        .unwrap();
    assert_eq!(
        Checkpoint::open(&merged).unwrap().metadata()["format"],
        "np"
    );
}

/// What was opened before it was replaced can still be read.
fn check_open(checkpoint: &Checkpoint, tensors: &[Tensor]) {
    common::saved::assert_is(checkpoint, tensors);
}

#[test]
fn checksums_and_casts_are_made_anew_when_a_checkpoint_is_saved_again() {
    let dir = Dir::new();
    let path = dir.join("model.safetensors");
    let tensors = [
        Tensor::new("a", Dtype::F32, &[4], counting(16)),
        Tensor::bytes("b", 5),
    ];
    saver().checksums().save(&path, views(&tensors)).unwrap();
    let cast = saver().cast_floats(Dtype::BF16);
    cast.save_checkpoint(&path, &Checkpoint::open(&path).unwrap())
        .unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.info("a").unwrap().dtype(), Dtype::BF16);
    checkpoint.verify_checksums().unwrap();
    assert_eq!(checkpoint.metadata().len(), 2);
}

/// Only what the index names.
#[test]
fn tensors_that_the_index_does_not_name_are_not_merged() {
    let dir = Dir::new();
    dir.shard("1.safetensors", &["a", "b"]);
    dir.shard("2.safetensors", &["b", "c"]);
    dir.index_of(&[("a", "1.safetensors"), ("b", "2.safetensors")]);
    let merged = dir.join("merged.safetensors");
    saver()
        .save_checkpoint(&merged, &Checkpoint::open(dir.path()).unwrap())
        .unwrap();
    assert_holds(&merged, &["a", "b"].map(|name| Tensor::bytes(name, 4)));
}

#[cfg(target_os = "linux")]
#[test]
fn a_checkpoint_is_resharded_in_next_to_no_memory() {
    const TEST: &str = "a_checkpoint_is_resharded_in_next_to_no_memory";
    if let Some(path) = child::task() {
        let checkpoint = Checkpoint::open(&path).unwrap();
        let saver = saver().cast_floats(Dtype::F32).checksums();
        let small = saver.clone().max_shard_size(u64::MAX);
        let tiny = Dir::new();
        saver.save(tiny.path(), views(&tensors())).unwrap();
        let before = peak();
        saver
            .max_shard_size(16 << 20)
            .save_checkpoint(&path, &checkpoint)
            .unwrap();
        small
            .save_checkpoint(&path, &Checkpoint::open(&path).unwrap())
            .unwrap();
        let used = peak() - before;
        assert!(used < 4 << 20, "{used} bytes");
        return;
    }
    let dir = Dir::new();
    let data = counting(8 << 20);
    let shape = [data.len() / 2];
    let tensor = |name| {
        (
            name,
            TensorView::new(name, Dtype::BF16, &shape, &data).unwrap(),
        )
    };
    saver()
        .untied()
        .save(dir.path(), ["a", "b", "c"].map(tensor))
        .unwrap();
    let output = child::command(TEST, dir.path()).output();
    child::assert_passed(&output.unwrap());
    assert_eq!(names_in(dir.path()), ["model.safetensors"]);
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(checkpoint.byte_len(), 3 * 2 * (8 << 20));
}

/// The most memory this process has ever had in use, in bytes.
#[cfg(target_os = "linux")]
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<usize>().unwrap() * 1024
}

#[test]
fn sizes_as_people_write_them() {
    for (text, bytes) in [
        ("0", 0),
        ("1000", 1000),
        ("18446744073709551615", u64::MAX),
        ("7B", 7),
        ("7 b", 7),
        ("2KB", 2_000),
        ("2MB", 2_000_000),
        ("5GB", 5_000_000_000),
        ("5 gb", 5_000_000_000),
        ("3TB", 3_000_000_000_000),
        ("2KiB", 2 << 10),
        ("200MiB", 200 << 20),
        ("1gib", 1 << 30),
        ("4TiB", 4 << 40),
        ("007KB", 7_000),
    ] {
        assert_eq!(byte_size(text).unwrap(), bytes, "{text}");
    }
    for text in [
        "",
        " ",
        "GB",
        "-1",
        "+1",
        "1.5GB",
        "1e3",
        "0x10",
        " 1",
        "5 GB ",
        "5G",
        "5PB",
        "5GBs",
        "5 G B",
        "1,000",
        "1_000",
        "18446744073709551616",
        "18446744073709551615KB",
        "٣GB",
    ] {
        let message = "is no size of 64 bits such as 5GB, 200MiB or 1000";
        rejected(byte_size(text), ErrorKind::InvalidRequest, message);
    }
}

proptest! {
    #[test]
    fn sizes_are_numbers_times_units(
        number: u64,
        shift in 0..64_u32,
        unit in proptest::sample::select(vec![
            ("", 1_u128),
            ("B", 1),
            ("KB", 1000),
            ("MB", 1000 * 1000),
            ("GB", 1000 * 1000 * 1000),
            ("TB", 1000 * 1000 * 1000 * 1000),
            ("KiB", 1024),
            ("MiB", 1024 * 1024),
            ("GiB", 1024 * 1024 * 1024),
            ("TiB", 1024 * 1024 * 1024 * 1024),
        ]),
        space: bool,
        case in 0..3,
    ) {
        let number = number >> shift;
        let (unit, bytes) = unit;
        let unit = match case {
            0 => unit.to_owned(),
            1 => unit.to_lowercase(),
            _ => unit.to_uppercase(),
        };
        let space = if space && !unit.is_empty() { " " } else { "" };
        let expected = u64::try_from(u128::from(number) * bytes).ok();
        prop_assert_eq!(byte_size(&format!("{number}{space}{unit}")).ok(), expected);
    }

    #[test]
    fn no_text_is_too_odd_to_be_asked(text in ".{0,20}") {
        if let Err(error) = byte_size(&text) {
            prop_assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        }
    }
}

/// A tensor that is called `b` as well.
fn tied(dir: &Dir) -> std::path::PathBuf {
    let path = dir.join("tied.safetensors");
    let tensor = Tensor::bytes("a", 100);
    let view = view(&tensor);
    saver().save(&path, [("a", view.1), ("b", view.1)]).unwrap();
    path
}

#[test]
fn a_copy_keeps_aliases_or_makes_tensors_of_them() {
    let dir = Dir::new();
    let source = Checkpoint::open(tied(&dir)).unwrap();
    let copy = dir.join("copy.safetensors");
    saver().save_checkpoint(&copy, &source).unwrap();
    let copied = Checkpoint::open(&copy).unwrap();
    assert_eq!((copied.len(), copied.resolve("b")), (1, "a"));

    saver().untied().save_checkpoint(&copy, &source).unwrap();
    let copied = Checkpoint::open(&copy).unwrap();
    assert_eq!((copied.len(), copied.resolve("b")), (2, "b"));
    assert_eq!(copied.read("b").unwrap(), source.read("a").unwrap());
    assert!(copied.metadata().is_empty(), "{:?}", copied.metadata());

    let error = saver()
        .metadata("b", "text")
        .save_checkpoint(&copy, &source);
    let error = error.unwrap_err();
    assert_eq!(
        (error.kind(), error.tensor()),
        (ErrorKind::InvalidRequest, Some("b"))
    );
    assert_eq!(Checkpoint::open(&copy).unwrap().len(), 2);
}
