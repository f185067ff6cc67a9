//! `safetensors edit`: changes the metadata of a file, or the names of its tensors.

use std::io::{self, Write};

use st_format::{Edited, Editor, Error, ErrorKind, Result};

use crate::args::{Edit, pairs};
use crate::escape::escape;
use crate::output::fail;
use crate::verdict::Verdict;

pub(crate) fn run(args: &Edit, out: &mut impl Write) -> io::Result<Verdict> {
    let how = match edit(args) {
        Ok(Edited::InPlace) => "changed in place",
        Ok(Edited::Rewritten) => "rewritten, for the header no longer fits in its old place",
        Err(error) => return Ok(fail(&error)),
    };
    writeln!(out, "{}: {how}", escape(&args.file.to_string_lossy()))?;
    Ok(Verdict::Ok)
}

fn edit(args: &Edit) -> Result<Edited> {
    let mut editor = Editor::open(&args.file)?;
    for key in &args.remove {
        if editor.remove_metadata(key).is_none() {
            let message = format!("there is no metadata {key:?} to remove");
            return Err(Error::new(ErrorKind::NotFound, message).with_path(&args.file));
        }
    }
    for [key, value] in pairs(&args.set) {
        editor.set_metadata(key, value);
    }
    for [old, new] in pairs(&args.rename) {
        editor.rename(old, new)?;
    }
    match args.durable {
        true => editor.save_durably(),
        false => editor.save(),
    }
}
