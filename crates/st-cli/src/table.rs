//! Text in columns.

use std::borrow::Cow;
use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

/// Cells longer than this do not widen their column: one long name must not pad every line.
const WIDEST: usize = 80;

/// Which side of its column a cell leans to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Cells, row by row.
pub(crate) struct Table<'a> {
    aligns: Vec<Align>,
    cells: Vec<Cow<'a, str>>,
}

impl<'a> Table<'a> {
    pub(crate) fn new(aligns: impl IntoIterator<Item = Align>) -> Table<'a> {
        Table {
            aligns: aligns.into_iter().collect(),
            cells: Vec::new(),
        }
    }

    /// Adds a row; cells beyond the number of columns are left out.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cow<'a, str>>) {
        let columns = self.aligns.len();
        self.cells.extend(cells.into_iter().take(columns));
    }

    /// A paragraph of its own under a title, or nothing where there are no rows.
    pub(crate) fn write_titled(&self, out: &mut impl Write, title: &str) -> io::Result<()> {
        if self.cells.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        writeln!(out, "{title}")?;
        self.write(out)
    }

    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let widths = self.widths();
        for row in self.rows() {
            let mut padding = 0;
            for ((cell, &column), align) in row.iter().zip(&widths).zip(&self.aligns) {
                if cell.is_empty() {
                    padding += column + 2;
                    continue;
                }
                let free = column.saturating_sub(width(cell));
                let (before, after) = match align {
                    Align::Left => (0, free),
                    Align::Right => (free, 0),
                };
                // What follows a cell is left to the next one, so that no line ends in spaces.
                pad(out, padding + before)?;
                out.write_all(cell.as_bytes())?;
                padding = after + 2;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn rows(&self) -> impl Iterator<Item = &[Cow<'a, str>]> {
        self.cells.chunks(self.aligns.len().max(1))
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.aligns.len()];
        for row in self.rows() {
            for (cell, column) in row.iter().zip(&mut widths) {
                let width = width(cell);
                if width <= WIDEST {
                    *column = width.max(*column);
                }
            }
        }
        widths
    }
}

fn pad(out: &mut impl Write, mut spaces: usize) -> io::Result<()> {
    const SPACES: [u8; WIDEST] = [b' '; WIDEST];
    while spaces > 0 {
        let some = &SPACES[..spaces.min(WIDEST)];
        out.write_all(some)?;
        spaces -= some.len();
    }
    Ok(())
}

fn width(cell: &str) -> usize {
    match cell.is_ascii() {
        true => cell.len(),
        false => cell.width(),
    }
}
