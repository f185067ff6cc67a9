//! What can be asked of the command, and its help.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};
use globset::{Glob, GlobMatcher};
use st_format::{Dtype, UnknownDtype, byte_size};

/// Look into .safetensors checkpoints, check, copy and edit them.
///
/// A checkpoint is named by a .safetensors file, by the index of a sharded model
/// (model.safetensors.index.json), or by a directory that holds one of these.
///
/// inspect and verify read headers only, so models of any size are looked at in no time; copy and
/// verify --checksums read all of the weights.
#[derive(Debug, Parser)]
#[command(name = "safetensors", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Inspect(Inspect),
    Verify(Verify),
    Copy(Copy),
    Edit(Edit),
}

/// Show the metadata, the tensors and the totals of a checkpoint.
///
/// Tensors are listed in file order, shard by shard. Aliases are further names of tensors, recorded
/// in the metadata; checksums recorded there are only counted. A name is shown in quotes, with escapes,
/// where it holds anything but visible characters and single spaces.
#[derive(Debug, Args)]
#[command(after_long_help = INSPECT_NOTES)]
pub(crate) struct Inspect {
    /// A .safetensors file, an index, or a directory with one of these.
    pub(crate) path: PathBuf,

    /// Show only tensors and aliases whose name matches; totals are those of what is shown.
    ///
    /// The glob has to match the whole name. In it * stands for any text, dots included, ? for one
    /// byte, [0-3] for one of these, {q,k,v} for one of these words; a backslash takes the meaning
    /// from the character after it.
    #[arg(long, short, value_name = "GLOB")]
    pub(crate) filter: Option<Filter>,

    /// Print one JSON object, complete, instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Check that checkpoints are whole and well-formed.
///
/// Of each file the header is checked against the format's rules and against the file's length;
/// of an index also that every shard is there and holds the tensors it should. For each path one
/// line says that it is ok, or what is wrong; what is odd but allowed follows as warnings.
///
/// With --checksums all weights are read as well, and every tensor that is not as it was saved is
/// named, on a line of its own.
#[derive(Debug, Args)]
#[command(after_long_help = VERIFY_NOTES)]
pub(crate) struct Verify {
    /// .safetensors files, indexes, or directories with one of these.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    /// Also read every tensor, and compare it with the SHA-256 that was recorded when it was saved.
    ///
    /// Checksums stand in the metadata, under sha256: and the tensor's name. A tensor without one
    /// is neither ok nor broken: there is nothing to compare it with.
    #[arg(long)]
    pub(crate) checksums: bool,

    /// Print nothing about what is ok: neither its line nor its warnings.
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Print a JSON object for each path, on a line of its own, instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Save a checkpoint once more: elsewhere, in other shards, as one file, cast.
///
/// Without --max-shard-size the copy is one file, so that shards are merged. Where TO is a
/// directory, the copy becomes the checkpoint in it, in place of the one that may be there. TO may
/// be FROM.
///
/// Metadata and aliases are kept. Of checksums that are recorded each is compared, and recorded
/// anew: a damaged tensor is not copied.
///
/// Weights pass through in blocks, models of any size need little memory. The copy is all or
/// nothing: what was at TO is there until all of the new is. What kills the command may leave
/// hidden files there, which end in .tmp.
#[derive(Debug, Args)]
#[command(after_long_help = COPY_NOTES)]
pub(crate) struct Copy {
    /// A .safetensors file, an index, or a directory with one of these.
    pub(crate) from: PathBuf,

    /// The file to write, or a directory; with --max-shard-size one that need not be there yet.
    pub(crate) to: PathBuf,

    /// Split the copy into shards of at most this many bytes of tensors, with an index.
    ///
    /// Such as 5GB, 200MiB or 1000. A larger tensor has a shard to itself.
    #[arg(long, value_name = "SIZE", value_parser = byte_size)]
    pub(crate) max_shard_size: Option<u64>,

    /// Cast all floating point tensors to this dtype, such as BF16.
    ///
    /// Values are rounded to the nearest, ties to even. Tensors of other dtypes stay as they are.
    #[arg(long, value_name = "DTYPE", value_parser = dtype)]
    pub(crate) cast_floats: Option<Dtype>,

    /// Set free text in the metadata; can be given several times.
    #[arg(long, num_args = 2, value_names = ["KEY", "VALUE"], allow_hyphen_values = true)]
    pub(crate) metadata: Vec<String>,

    /// Record the SHA-256 of each tensor, for verify --checksums.
    #[arg(long)]
    pub(crate) checksums: bool,

    /// Begin the tensors' data at a multiple of so many bytes, a power of two such as 4096.
    #[arg(long, value_name = "BYTES")]
    pub(crate) align: Option<usize>,

    /// Leave so many bytes of room in each header, for metadata to come.
    #[arg(long, value_name = "BYTES")]
    pub(crate) reserve: Option<usize>,

    /// Return only when the disk has everything, so that it survives a power failure.
    #[arg(long)]
    pub(crate) durable: bool,
}

/// Change the metadata of a file, or the names of its tensors.
///
/// The weights stay where they are if the new header fits in the place of the old one, which
/// copy --reserve makes larger; otherwise the file is written anew and replaced. All changes are
/// made at once, and none if one cannot be: --remove first, then --set, then --rename.
///
/// What is changed in place changes under those who read it, and is not all or nothing if the power
/// fails: keep a copy of what cannot be had again.
#[derive(Debug, Args)]
#[command(
    after_long_help = EDIT_NOTES,
    group = ArgGroup::new("changes").required(true).multiple(true),
)]
pub(crate) struct Edit {
    /// A .safetensors file. The index of a shard is not changed, and would not know of new names.
    pub(crate) file: PathBuf,

    /// Set free text in the metadata; can be given several times, as all changes can.
    #[arg(
        long,
        num_args = 2,
        value_names = ["KEY", "VALUE"],
        allow_hyphen_values = true,
        group = "changes"
    )]
    pub(crate) set: Vec<String>,

    /// Remove free text from the metadata.
    #[arg(
        long,
        value_name = "KEY",
        allow_hyphen_values = true,
        group = "changes"
    )]
    pub(crate) remove: Vec<String>,

    /// Give a tensor, or an alias, another name; names can be exchanged.
    ///
    /// Aliases of a tensor and its checksum go with it.
    #[arg(
        long,
        num_args = 2,
        value_names = ["OLD", "NEW"],
        allow_hyphen_values = true,
        group = "changes"
    )]
    pub(crate) rename: Vec<String>,

    /// Return only when the disk has everything, so that it survives a power failure.
    #[arg(long)]
    pub(crate) durable: bool,
}

/// The values of an option that takes two at a time: `--metadata KEY VALUE`, for each may hold any
/// character, `=` included.
pub(crate) fn pairs(values: &[String]) -> &[[String; 2]] {
    let (pairs, _) = values.as_chunks();
    pairs
}

fn dtype(name: &str) -> Result<Dtype, UnknownDtype> {
    name.to_ascii_uppercase().parse()
}

/// A glob over tensor names.
#[derive(Clone, Debug)]
pub(crate) struct Filter(GlobMatcher);

impl Filter {
    pub(crate) fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

impl std::str::FromStr for Filter {
    type Err = globset::Error;

    fn from_str(glob: &str) -> Result<Filter, globset::Error> {
        Ok(Filter(Glob::new(glob)?.compile_matcher()))
    }
}

const INSPECT_NOTES: &str = r#"JSON:
  {"path": "model.safetensors",         the file or index that was read
   "metadata": {"format": "pt"},        keys sorted; of shards that differ, the first one counts
   "aliases": {                         further names of tensors, each with the tensor's own; they
     "lm_head.weight": "wte.weight"     stand in "metadata" too
   },
   "tensors": [{
     "name": "wte.weight",
     "dtype": "F32",
     "shape": [50257, 768],
     "bytes": 154389504,
     "shard": "model.safetensors",      relative to the directory of "path"
     "data_offsets": [0, 154389504]     counted from the end of that file's header
   }],
   "totals": {
     "tensors": 1,
     "parameters": 38597376,            elements of all tensors
     "bytes": 154389504,
     "dtypes": {"F32": {"tensors": 1, "parameters": 38597376, "bytes": 154389504}}
   }}
  Fields may be added, never removed or renamed. What is not UTF-8 in a path is replaced by U+FFFD.

Exit status:
  0  it was shown
  1  it is broken
  2  it could not be looked at, or the command was misused

Examples:
  safetensors inspect model.safetensors
  safetensors inspect model/ --filter '*.{q,k,v}_proj.weight'
  safetensors inspect model/ --json | jq .totals.parameters"#;

const VERIFY_NOTES: &str = r#"JSON, a line for each path:
  {"path": "model",                     as it was given
   "verdict": "ok",                     or "broken" or "unseen"
   "tensors": 148,                      where the verdict is "ok"
   "bytes": 497759232,                  the same; those of all tensors
   "checksums": 148,                    the same, with --checksums: tensors that are as recorded
   "warnings": ["model/model.safetensors: ..."],   the same
   "error": "...",                      where it is another: what is wrong
   "errors": ["...", "..."]}            the same, with --checksums: all that is, if it is several

Exit status:
  0  all are ok; there may be warnings
  1  something is broken
  2  nothing is broken, but something could not be looked at; or the command was misused
  All paths are looked at, whatever is wrong with one. Those that could not be are named on
  standard error: files that are missing or unreadable, directories that hold no checkpoint or
  several, and, with --checksums, tensors whose checksum is not recorded.

Examples:
  safetensors verify model.safetensors
  safetensors verify --quiet models/*/
  safetensors verify --checksums model/"#;

const COPY_NOTES: &str = r#"Exit status:
  0  the copy is there; its files are named on standard output, an index last
  1  FROM is broken
  2  it could not be done, or the command was misused
  With 1 and 2 what was at TO is still there.

Examples:
  safetensors copy model/ merged.safetensors
  safetensors copy model.safetensors shards/ --max-shard-size 5GB
  safetensors copy model/ half/ --cast-floats BF16 --max-shard-size 5GB --checksums
  safetensors copy a.safetensors b.safetensors --metadata license Apache-2.0"#;

const EDIT_NOTES: &str = r#"Exit status:
  0  it was changed; standard output says whether in place
  1  FILE is broken, or something else
  2  it could not be done, or the command was misused
  With 1 and 2 nothing was changed, unless it was the disk that failed.

Examples:
  safetensors edit model.safetensors --set license Apache-2.0 --remove note
  safetensors edit model.safetensors --rename weight model.weight --rename bias model.bias"#;
