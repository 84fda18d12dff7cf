//! The mutants, as cargo-mutants lists them.

use crate::source::Positions;
use serde_json::Value;
use std::collections::HashMap;
use std::ops::Range;

/// One change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    /// The file, from the repository's root.
    pub file: String,
    /// The change without its place: `replace == with != in Command::from_debug_name`.
    pub what: String,
    /// The line it begins in, without the white space around it.
    pub line: String,
    /// Where in that line, in characters from 0.
    pub column: usize,
    /// Bytes of the function it is in, attributes included. `None`: a constant.
    pub function: Option<Range<usize>>,
    /// Bytes that are replaced.
    pub span: Range<usize>,
    /// What they are replaced with.
    pub replacement: String,
}

impl Mutant {
    /// The file's text with this change.
    #[must_use]
    pub fn apply(&self, text: &str) -> String {
        let (before, after) = (text.get(..self.span.start), text.get(self.span.end..));
        format!("{} {} {}", before.unwrap_or_default(), self.replacement, after.unwrap_or_default())
    }
}

/// Reads the output of `cargo mutants --list --json`. `texts` has the text of every file.
///
/// # Errors
/// What is not as cargo-mutants 27 writes it.
pub fn parse(json: &str, texts: &HashMap<String, String>) -> Result<Vec<Mutant>, String> {
    let list: Vec<Value> = serde_json::from_str(json).map_err(|e| format!("the list of mutants: {e}"))?;
    let known =
        list.iter().filter(|entry| entry["file"].as_str().is_some_and(|file| texts.contains_key(file)));
    known
        .map(|entry| mutant(entry, texts).ok_or_else(|| format!("a mutant of unknown form: {entry}")))
        .collect()
}

fn mutant(entry: &Value, texts: &HashMap<String, String>) -> Option<Mutant> {
    let file = entry["file"].as_str()?;
    let positions = Positions::new(texts.get(file)?);
    let span = &entry["span"];
    // The name is `file:line:column: what`.
    let what = entry["name"].as_str()?.splitn(4, ':').nth(3)?.trim();
    let number = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
    let (line, indent) = positions.line(number(&span["start"]["line"])?)?;
    let function = match &entry["function"] {
        Value::Null => None,
        function => Some(range(&positions, &function["span"])?),
    };
    Some(Mutant {
        file: file.to_owned(),
        what: what.to_owned(),
        line: line.to_owned(),
        column: number(&span["start"]["column"])?.checked_sub(1 + indent)?,
        function,
        span: range(&positions, span)?,
        replacement: entry["replacement"].as_str()?.to_owned(),
    })
}

fn range(positions: &Positions<'_>, span: &Value) -> Option<Range<usize>> {
    let end = |end: &Value| {
        let number = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
        positions.offset(number(&end["line"])?, number(&end["column"])?)
    };
    Some(end(&span["start"])?..end(&span["end"])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_read_and_applied() {
        let text = "const A: u8 = 1;\n\nfn f() -> bool {\n    A == 2\n}\n";
        let json = r#"[{"file": "wire/src/x.rs", "function": {"function_name": "f", "return_type": "-> bool",
            "span": {"start": {"line": 3, "column": 1}, "end": {"line": 5, "column": 2}}}, "genre": "BinaryOperator",
            "name": "wire/src/x.rs:4:7: replace == with != in f", "package": "sanlock-wire", "replacement": "!=",
            "span": {"start": {"line": 4, "column": 7}, "end": {"line": 4, "column": 9}}}]"#;
        let texts = HashMap::from([("wire/src/x.rs".to_owned(), text.to_owned())]);
        let mutants = parse(json, &texts).unwrap_or_default();
        assert_eq!(mutants.len(), 1);
        assert_eq!(mutants[0].what, "replace == with != in f");
        assert_eq!((mutants[0].line.as_str(), mutants[0].column), ("A == 2", 2));
        assert_eq!(mutants[0].function.clone().map(|f| &text[f]), Some("fn f() -> bool {\n    A == 2\n}"));
        assert_eq!(mutants[0].apply(text), text.replace("==", " != "));
        assert!(parse(&json.replace("\"column\": 7", "\"column\": 70"), &texts).is_err());
    }
}
