//! Tables of what was measured, from the JSON of a run.

use serde_json::Value;

use super::markdown;
use crate::table::number;

/// Sections, and the measures and kinds of storage whose rows they show.
const SECTIONS: [(&str, &[&str], &[&str]); 4] = [
    ("renewal", &["renewal"], &["file"]),
    ("join", &["join", "rejoin"], &["file"]),
    ("throughput", &["acquire", "throughput"], &["file", "loop512", "loop4096"]),
    ("ask", &["ask"], &["file"]),
];

/// Whether the figures of a run are fit for a page.
pub(super) fn fit(run: &Value) -> Result<(), String> {
    if run["quick"] != false || run["optimised"] != true {
        return Err(
            "the figures of a quick run, or of a program built without optimisation, say little".to_owned()
        );
    }
    Ok(())
}

/// Whether there is such a section.
pub(super) fn known(name: &str) -> Result<(), String> {
    section(name).map(|_| ())
}

fn section(name: &str) -> Result<(&'static [&'static str], &'static [&'static str]), String> {
    let found = SECTIONS.iter().find(|(section, ..)| *section == name);
    found
        .map(|(_, measures, storage)| (*measures, *storage))
        .ok_or_else(|| format!("no measured table {name:?}"))
}

/// The table of a section.
pub(super) fn table(name: &str, run: &Value) -> Result<String, String> {
    let (measures, storage) = section(name)?;
    let one_of = |words: &[&str], word: &Value| word.as_str().is_some_and(|word| words.contains(&word));
    let mut rows = Vec::new();
    for measure in run["measures"].as_array().into_iter().flatten() {
        if one_of(measures, &measure["measure"]) && one_of(storage, &measure["storage"]) {
            let all = measure["rows"].as_array().into_iter().flatten();
            rows.extend(all.map(|row| cells(row, &measure["storage"])));
        }
    }
    if rows.is_empty() {
        return Err(format!("the run has no rows for the table {name:?}"));
    }
    Ok(markdown(&["", "Storage", "Unit", "Original", "Ours"], rows))
}

fn cells(row: &Value, storage: &Value) -> Vec<String> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let median = |program: &str| row[program]["median"].as_f64().map_or("–".to_owned(), number);
    let title = match (row["size"]["number"].as_u64(), row["size"]["of"].as_str()) {
        (Some(number), Some(of)) => format!("{} ({number} {of})", word(&row["name"])),
        _ => word(&row["name"]),
    };
    let note = word(&row["note"]);
    let title = if note.is_empty() { title } else { format!("{title}; {note}") };
    vec![title, word(storage), word(&row["unit"]), median("original"), median("ours")]
}
