//! What a checkpoint's tensors are called in a module.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use st_format::{Error, ErrorKind, Result};

type Rename = Box<dyn Fn(&str) -> String + Send + Sync>;

/// How names are changed, step by step.
#[derive(Default)]
pub(crate) struct Names {
    renames: Vec<Rename>,
    pub(crate) contiguous: bool,
}

impl Names {
    pub(crate) fn rename(&mut self, rename: impl Fn(&str) -> String + Send + Sync + 'static) {
        self.renames.push(Box::new(rename));
    }

    pub(crate) fn replace(&mut self, pattern: &str, replacement: String) -> Result<()> {
        let pattern = compile(pattern)?;
        self.rename(move |name| pattern.replace_all(name, &replacement).into_owned());
        Ok(())
    }

    /// What the file's tensors are called in the module, in the same order.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` where two of them would be called the same.
    pub(crate) fn in_module(&self, names: &[&str]) -> Result<Vec<String>> {
        let mut new_names = self.renamed(names);
        if self.contiguous {
            new_names = contiguous(&new_names);
        }
        check_distinct(names, &new_names)?;
        Ok(new_names)
    }

    /// What the module's tensors are called in the file, in the same order.
    ///
    /// # Errors
    ///
    /// As [`in_module`](Names::in_module).
    pub(crate) fn in_file(&self, names: &[&str]) -> Result<Vec<String>> {
        let new_names = self.renamed(names);
        check_distinct(names, &new_names)?;
        Ok(new_names)
    }

    fn renamed(&self, names: &[&str]) -> Vec<String> {
        let rename = |name: &&str| {
            let steps = self.renames.iter();
            steps.fold((*name).to_owned(), |name, rename| rename(&name))
        };
        names.iter().map(rename).collect()
    }
}

pub(crate) fn compile(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| {
        Error::new(ErrorKind::InvalidRequest, "not a regular expression").with_source(error)
    })
}

fn check_distinct(names: &[&str], new_names: &[String]) -> Result<()> {
    let mut taken = HashMap::with_capacity(names.len());
    for (name, new_name) in names.iter().zip(new_names) {
        match taken.entry(new_name) {
            Entry::Vacant(vacant) => drop(vacant.insert(name)),
            Entry::Occupied(other) => {
                let message = format!("renamed to {new_name:?}, and so is {:?}", other.get());
                return Err(Error::new(ErrorKind::InvalidRequest, message).with_tensor(name));
            }
        }
    }
    Ok(())
}

/// The names with the numbers at each place of them counted through from 0: layers 0, 2 and 4
/// become 0, 1 and 2.
fn contiguous(names: &[String]) -> Vec<String> {
    let mut numbers: HashMap<&str, BTreeSet<usize>> = HashMap::new();
    for name in names {
        for (before, number) in numbers_in(name) {
            numbers.entry(before).or_default().insert(number);
        }
    }
    let rank = |numbers: BTreeSet<usize>| numbers.into_iter().zip(0..).collect();
    let ranks: HashMap<&str, BTreeMap<usize, usize>> = numbers
        .into_iter()
        .map(|(before, numbers)| (before, rank(numbers)))
        .collect();
    let renumber = |name: &String| {
        let mut segments: Vec<String> = name.split('.').map(str::to_owned).collect();
        for (before, number) in numbers_in(name) {
            let at = before.matches('.').count();
            segments[at] = ranks[before][&number].to_string();
        }
        segments.join(".")
    };
    names.iter().map(renumber).collect()
}

/// The segments of a name that are numbers, each with what stands before it.
fn numbers_in(name: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut begin = 0;
    name.split('.').filter_map(move |segment| {
        let before = &name[..begin];
        begin += segment.len() + 1;
        Some((before, segment.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_counted_through_at_each_place() {
        let names = [
            "fc.0.weight",
            "fc.4.weight",
            "blocks.1.conv.3.weight",
            "blocks.1.conv.5.weight",
            "blocks.9.conv.3.weight",
            "7",
        ];
        let new_names = contiguous(&names.map(str::to_owned));
        let expected = [
            "fc.0.weight",
            "fc.1.weight",
            "blocks.0.conv.0.weight",
            "blocks.0.conv.1.weight",
            "blocks.1.conv.0.weight",
            "0",
        ];
        assert_eq!(new_names, expected);
    }

    #[test]
    fn two_of_one_name_are_an_error() {
        let mut names = Names::default();
        names.replace(r"^.*\.", String::new()).unwrap();
        let error = names.in_module(&["a.weight", "b.weight"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert_eq!(error.tensor(), Some("b.weight"));
        assert!(error.to_string().contains(r#""a.weight""#), "{error}");
    }
}
