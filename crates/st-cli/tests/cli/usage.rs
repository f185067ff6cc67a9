//! Help, version, and what is asked wrongly.

use crate::run::{args, run};

#[test]
fn help_and_version() {
    assert!(
        run(["--version"])
            .fine()
            .starts_with(concat!("safetensors ", env!("CARGO_PKG_VERSION")))
    );
    assert!(run(["--help"]).fine().contains("Usage:"));
    for verb in ["inspect", "verify", "copy", "edit"] {
        let help = run([verb, "--help"]).fine();
        for part in ["Usage:", "Exit status:", "Examples:"] {
            assert!(help.contains(part), "{part} in {help}");
        }
        assert_eq!(help.contains("--json"), help.contains("JSON"), "{help}");
    }
}

#[test]
fn misuse_exits_with_2() {
    for misuse in [
        &args![] as &[_],
        &args!["verify"],
        &args!["inspect"],
        &args!["inspect", "a", "b"],
        &args!["inspect", "a", "--filter", "[a"],
        &args!["copy", "a"],
        &args!["copy", "a", "b", "--cast-floats", "bfloat16"],
        &args!["copy", "a", "b", "--max-shard-size", "5 potatoes"],
        &args!["copy", "a", "b", "--metadata", "key"],
        &args!["edit", "--set", "key", "value"],
        &args!["edit", "a"],
        &args!["edit", "a", "--durable"],
        &args!["edit", "a", "--set", "key"],
        &args!["edit", "a", "--rename", "old"],
        &args!["frobnicate"],
    ] {
        let shown = run(misuse);
        assert_eq!((shown.code, shown.stdout.as_str()), (Some(2), ""));
        assert_ne!(shown.stderr, "");
    }
}
