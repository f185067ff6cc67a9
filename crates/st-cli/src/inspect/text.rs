//! A report for a person: a heading, the metadata, a table of tensors, the totals.

use std::borrow::Cow;
use std::io::{self, Write};

use st_format::CHECKSUM_PREFIX;

use super::report::Report;
use super::totals::{Total, Totals};
use crate::escape::{cut, escape, name};
use crate::table::{Align, Table};
use crate::units;

pub(super) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    heading(out, report)?;
    metadata(out, report)?;
    aliases(out, report)?;
    tensors(out, report)?;
    totals(out, &report.totals)
}

fn heading(out: &mut impl Write, report: &Report) -> io::Result<()> {
    write!(out, "{}: ", escape(&report.path))?;
    let shown = report.totals.all.tensors;
    if shown < report.of {
        write!(out, "{shown} of ")?;
    }
    write!(out, "{}", units::exactly(report.of, "tensor"))?;
    if report.shards > 1 {
        write!(out, " in {} shards", report.shards)?;
    }
    writeln!(out)
}

fn metadata(out: &mut impl Write, report: &Report) -> io::Result<()> {
    const LONGEST_KEY: usize = 40;
    const LONGEST_VALUE: usize = 100;
    let mut table = Table::new([Align::Left; 2]);
    for (key, value) in &report.notes {
        table.row([cut(key, LONGEST_KEY), cut(value, LONGEST_VALUE)].map(Cow::from));
    }
    // There are as many as tensors.
    if report.checksums > 0 {
        let key = format!("{CHECKSUM_PREFIX}…");
        table.row([key, units::exactly(report.checksums, "checksum")].map(Cow::from));
    }
    table.write_titled(out, "metadata")
}

fn aliases(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let mut table = Table::new([Align::Left; 2]);
    for (alias, kept) in &report.aliases {
        table.row([name(alias), name(kept)]);
    }
    table.write_titled(out, "aliases")
}

fn tensors(out: &mut impl Write, report: &Report) -> io::Result<()> {
    if report.tensors.is_empty() {
        return Ok(());
    }
    let columns = [
        ("name", Align::Left),
        ("dtype", Align::Left),
        ("shape", Align::Left),
        ("bytes", Align::Right),
        ("shard", Align::Left),
    ];
    let shown = match report.shards {
        1 => &columns[..4],
        _ => &columns[..],
    };
    let mut table = Table::new(shown.iter().map(|&(_, align)| align));
    table.row(shown.iter().map(|&(heading, _)| heading.into()));
    for tensor in &report.tensors {
        table.row([
            name(tensor.name),
            tensor.dtype.into(),
            format!("{:?}", tensor.shape).into(),
            tensor.bytes.to_string().into(),
            name(tensor.shard),
        ]);
    }
    writeln!(out)?;
    table.write(out)
}

fn totals(out: &mut impl Write, totals: &Totals) -> io::Result<()> {
    let row = |label: &'static str, total: &Total| -> [Cow<'static, str>; 4] {
        [
            label.into(),
            total.tensors.to_string().into(),
            total.parameters.to_string().into(),
            total.bytes.to_string().into(),
        ]
    };
    let mut table = Table::new([Align::Left, Align::Right, Align::Right, Align::Right]);
    table.row(["dtype", "tensors", "parameters", "bytes"].map(Cow::from));
    for (dtype, total) in &totals.dtypes {
        table.row(row(dtype.name(), total));
    }
    table.row(row("total", &totals.all));
    writeln!(out)?;
    table.write(out)?;
    writeln!(out)?;
    let parameters = units::about(totals.all.parameters, "parameter");
    let bytes = units::bytes(totals.all.bytes);
    writeln!(out, "{parameters}, {bytes}")
}
