//! `cargo xtask bench`: builds and runs the benchmarks, which are in workspaces of their own.

use anyhow::Result;

use crate::{command, libtorch, minilm};

/// A program that prints a table.
struct Program {
    manifest: &'static str,
    /// How the names of its rows begin; those of none begin otherwise.
    prefix: Option<&'static str>,
    has_libtorch: bool,
}

const PROGRAMS: [Program; 3] = [
    Program {
        manifest: "benches/Cargo.toml",
        prefix: None,
        has_libtorch: false,
    },
    Program {
        manifest: "benches/tch/Cargo.toml",
        prefix: Some("tch"),
        has_libtorch: true,
    },
    Program {
        manifest: "benches/burn/Cargo.toml",
        prefix: Some("burn"),
        has_libtorch: false,
    },
];

pub(crate) fn run(quick: bool, rows: &[String]) -> Result<()> {
    for program in &PROGRAMS {
        let its_rows: Vec<&String> = rows.iter().filter(|row| program.has(row)).collect();
        if rows.is_empty() || !its_rows.is_empty() {
            program.run(quick, &its_rows)?;
        }
    }
    Ok(())
}

impl Program {
    fn has(&self, row: &str) -> bool {
        let mut prefixes = PROGRAMS.iter().filter_map(|program| program.prefix);
        self.prefix == prefixes.find(|&prefix| row.starts_with(prefix))
    }

    fn run(&self, quick: bool, rows: &[&String]) -> Result<()> {
        let mut benches = command::cargo();
        benches.args(["run", "--release", "--manifest-path", self.manifest, "--"]);
        if quick {
            benches.arg("--quick");
        }
        if let Some(model) = minilm::WHEEL.cached()? {
            benches.arg("--minilm").arg(model);
        }
        if self.has_libtorch {
            libtorch::provide(&mut benches)?;
        }
        benches.args(rows);
        command::run(&mut benches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_in_one_program() {
        for (row, manifest) in [
            ("candle-small", "benches/Cargo.toml"),
            ("tch-owned", "benches/tch/Cargo.toml"),
            ("burn", "benches/burn/Cargo.toml"),
        ] {
            let programs = PROGRAMS.iter().filter(|program| program.has(row));
            let manifests: Vec<_> = programs.map(|program| program.manifest).collect();
            assert_eq!(manifests, [manifest], "{row}");
        }
    }
}
