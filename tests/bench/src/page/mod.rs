//! Tables within a page of the guide that nobody writes by hand: `<!-- computed: NAME -->` or `<!-- measured: NAME -->`, the table, `<!-- end -->`.

pub mod computed;
pub mod measured;

use serde_json::Value;

const COMPUTED: &str = "<!-- computed: ";
const MEASURED: &str = "<!-- measured: ";
const CLOSE: &str = " -->";
const END: &str = "<!-- end -->";

/// The page with its computed tables as they are to be, and with the measured ones if there is a run (`sanlock-bench --json`).
///
/// # Errors
/// A section that is not known or does not end, or a run that has nothing for one of them.
pub fn renewed(page: &str, run: Option<&Value>) -> Result<String, String> {
    if let Some(run) = run {
        measured::fit(run)?;
    }
    let mut text = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        text.push_str(line);
        text.push('\n');
        let Some(table) = table(line, run)? else { continue };
        let mut old = String::new();
        loop {
            match lines.next() {
                Some(END) => break,
                Some(row) if section(row).is_none() => old = old + row + "\n",
                _ => return Err(format!("{line} has no {END}")),
            }
        }
        text.push_str(&table.unwrap_or(old));
        text.push_str(END);
        text.push('\n');
    }
    Ok(text)
}

/// `None`: the line begins no section. `Some(None)`: what the section has is left there.
fn table(line: &str, run: Option<&Value>) -> Result<Option<Option<String>>, String> {
    match section(line) {
        None => Ok(None),
        Some((COMPUTED, name)) => computed::table(name).map(|table| Some(Some(table))),
        Some((_, name)) => match run {
            Some(run) => measured::table(name, run).map(|table| Some(Some(table))),
            None => measured::known(name).map(|()| Some(None)),
        },
    }
}

/// The kind and the name of the section that a line begins.
fn section(line: &str) -> Option<(&'static str, &str)> {
    [COMPUTED, MEASURED]
        .into_iter()
        .find_map(|kind| Some((kind, line.strip_prefix(kind)?.strip_suffix(CLOSE)?)))
}

/// A table in Markdown.
fn markdown(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        text.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PAGE: &str = "# A\n<!-- computed: space -->\nold\n<!-- end -->\nb\n<!-- measured: join -->\nlater\n<!-- end -->\nc\n";

    fn run() -> Value {
        json!({ "quick": false, "optimised": true, "measures": [{ "measure": "join", "storage": "file", "rows": [{
            "name": "join", "size": { "number": 40, "of": "lockspaces" }, "unit": "s",
            "original": { "median": 12.345 }, "ours": { "median": 2.0 }, "raw": null,
        }]}]})
    }

    #[test]
    fn only_what_is_between_the_markers_changes_and_once() {
        let page = renewed(PAGE, None).unwrap();
        assert!(page.starts_with("# A\n<!-- computed: space -->\n| "), "{page}");
        assert!(
            page.ends_with("<!-- end -->\nb\n<!-- measured: join -->\nlater\n<!-- end -->\nc\n"),
            "{page}"
        );
        assert_eq!(renewed(&page, None).as_ref(), Ok(&page));
        let filled = renewed(&page, Some(&run())).unwrap();
        assert!(
            filled.contains("| join (40 lockspaces) | file | s | 12.35 | 2.000 |\n<!-- end -->\nc\n"),
            "{filled}"
        );
        assert!(!filled.contains("later"), "{filled}");
    }

    #[test]
    fn what_cannot_be_filled_is_an_error() {
        for page in [
            "<!-- computed: nothing -->\n<!-- end -->\n",
            "<!-- measured: nothing -->\n<!-- end -->\n",
            "<!-- computed: space -->\nthe end is missing\n",
            "<!-- computed: space -->\n<!-- computed: times -->\n<!-- end -->\n",
        ] {
            assert!(renewed(page, None).is_err(), "{page}");
        }
        let other = "<!-- measured: renewal -->\n<!-- end -->\n";
        assert!(renewed(other, Some(&run())).is_err(), "the run has no such measure");
        for (key, value) in [("quick", true), ("optimised", false)] {
            let mut poor = run();
            poor[key] = value.into();
            assert!(renewed(PAGE, Some(&poor)).is_err(), "{key}: its figures say little");
        }
    }
}
