//! `docs/json.md`, held against objects that programs print.

use crate::repository;
use serde_json::Value;
use std::collections::BTreeSet;

fn members(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                if key != "details" {
                    members(inner, &path, found);
                }
                found.insert(path);
            }
        }
        Value::Array(items) => {
            for item in items {
                members(item, &format!("{path}[]"), found);
            }
        }
        _ => {}
    }
}

/// The text of a section.
fn documented(section: &str) -> String {
    let text = std::fs::read_to_string(repository("docs/json.md")).unwrap_or_else(|error| panic!("{error}"));
    let begin = format!("\n## {section}\n");
    let (_, rest) =
        text.split_once(&begin).unwrap_or_else(|| panic!("docs/json.md has no section {section}"));
    rest.split("\n## ").next().unwrap_or_default().to_owned()
}

/// The words between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The members in the first column of a section's tables. One that begins with a dot has the parent of the one before.
fn listed(section: &str) -> Vec<String> {
    let (mut found, mut in_table, mut parent) = (Vec::new(), false, String::new());
    for line in section.lines() {
        let Some(cell) = line.strip_prefix('|').and_then(|row| row.split('|').next()) else {
            in_table = false;
            continue;
        };
        if cell.trim() == "Member" {
            in_table = true;
        } else if in_table {
            for word in quoted(cell) {
                let whole =
                    word.strip_prefix('.').map_or_else(|| word.to_owned(), |last| parent.clone() + last);
                parent = whole.rsplit_once('.').map_or_else(String::new, |(before, _)| format!("{before}."));
                found.push(whole.trim_end_matches("[]").to_owned());
            }
        }
    }
    found
}

/// All members of these objects as paths, `[]` for the items of a list; what is in `details` depends on the daemon.
#[must_use]
pub fn members_of(values: &[&Value]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for value in values {
        members(value, "", &mut found);
    }
    found
}

/// Each member of these objects is named between backticks, in the section or among what all have in common; and each that the
/// section's table lists is in one of them.
///
/// # Panics
/// When one is missing, here or there.
pub fn is_documented(section: &str, values: &[&Value]) {
    let own = documented(section);
    let text = documented("In common") + &own;
    let named: BTreeSet<&str> =
        quoted(&text).flat_map(|word| word.split('.')).map(|word| word.trim_end_matches("[]")).collect();
    let found = members_of(values);
    for member in &found {
        let last = member.rsplit('.').next().unwrap_or(member).trim_end_matches("[]");
        let common = ["schema", "command"].contains(&last);
        assert!(named.contains(last) || common, "{section}: {member} is not in docs/json.md");
    }
    for member in listed(&own) {
        let there = found.iter().any(|path| *path == member || path.ends_with(&format!(".{member}")));
        assert!(there, "{section}: {member} of docs/json.md is in none of the objects");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_of_tables_are_read() {
        let text = "\n| Member | |\n|---|---|\n| `a[].b`, `.c` | `x` |\n| `d`, `e[]` | |\n\n| `type` | Members |\n| `f` | |\n";
        assert_eq!(listed(text), ["a[].b", "a[].c", "d", "e"]);
    }

    #[test]
    fn what_is_missing_is_found() {
        let good =
            json!({"schema": 1, "command": "renewal", "lockspace": "LS", "io_timeout_s": 10, "renewals": []});
        is_documented("renewal", &[&good]);
        for wrong in [json!({"nobody_knows_this": 1}), json!({"lockspaces": []})] {
            let section = if wrong.get("lockspaces").is_some() { "host_status" } else { "renewal" };
            assert!(std::panic::catch_unwind(|| is_documented(section, &[&wrong])).is_err(), "{wrong}");
        }
    }
}
