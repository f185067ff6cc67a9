//! Development tasks: `cargo xtask help` lists them.

mod bench;
mod command;
mod counts;
mod demo;
mod fetch;
mod libtorch;
mod minilm;
mod python;
mod test;
mod valgrind;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Development tasks.
///
/// What they download is kept in a cache outside the tree: $ST_CACHE, or st-xtask in
/// $XDG_CACHE_HOME or ~/.cache.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Fetches libtorch, which st-tch needs, and prints the environment to use it in
    Setup,
    /// Runs all tests, on a machine with nothing but Rust, Python 3 with pip and a C compiler
    Test,
    /// Embeds sentences with all-MiniLM-L6-v2 and compares with the embeddings of PyTorch
    Demo,
    /// Counts the instructions of parsing and loading, and compares with those that are expected
    Counts {
        /// Writes down what is found as what is expected from now on
        #[arg(long)]
        renew: bool,
    },
    /// Compares loading with other libraries, and prints the tables of BENCHMARKS.md
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Setup => libtorch::setup(),
        Task::Test => test::run(),
        Task::Demo => demo::run(),
        Task::Counts { renew: false } => counts::check(),
        Task::Counts { renew: true } => counts::renew(),
        Task::Bench(arguments) => bench::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
