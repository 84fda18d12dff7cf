//! Builds many mutants into one program.
//!
//! The body of each function with mutants becomes a choice: `match chosen(F) { 17 => { body with mutant 17 } … _ => { body } }`.
//! `const` is taken from functions so that they may ask for the choice; those that a constant needs keep it, and their mutants have to
//! be built one by one, as have those in constants themselves.

use crate::mutant::Mutant;
use crate::source;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;

/// The module that is added to the mutated package: which mutant runs comes from the environment, and which functions are
/// entered goes to a file when one is named there.
pub const SWITCH: &str = r#"
#[doc(hidden)]
#[allow(missing_docs, clippy::all)]
pub mod mutant_switch {
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    static CHOSEN: OnceLock<u32> = OnceLock::new();
    static REACHED: [AtomicBool; 4096] = [const { AtomicBool::new(false) }; 4096];

    pub fn chosen(function: usize) -> u32 {
        let chosen = *CHOSEN.get_or_init(|| match std::env::var("MUTANT") {
            Ok(number) => number.parse().unwrap_or(0),
            Err(_) => u32::MAX,
        });
        if chosen == u32::MAX && !REACHED[function].swap(true, Ordering::Relaxed) {
            if let Some(path) = std::env::var_os("MUTANT_REACHED") {
                let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
                let _ = file.and_then(|mut file| file.write_all(format!("{function}\n").as_bytes()));
            }
        }
        chosen
    }
}
"#;

/// Functions of one build, at most: the size of the switch's table.
pub const MAX_FUNCTIONS: usize = 4096;

/// One file with all its mutants that can be chosen at run time.
#[derive(Debug, Default)]
pub struct Woven {
    /// The text.
    pub text: String,
    /// Which lines (from 1) hold which mutant's body.
    pub lines: Vec<(Range<usize>, usize)>,
    /// Mutant and the number of its function.
    pub woven: Vec<(usize, usize)>,
    /// Mutants that need a build of their own.
    pub single: Vec<usize>,
}

impl Woven {
    /// The mutant whose body has this line.
    #[must_use]
    pub fn mutant_at(&self, line: usize) -> Option<usize> {
        self.lines.iter().find(|(range, _)| range.contains(&line)).map(|(_, mutant)| *mutant)
    }
}

/// Weaves the mutants (each with its number, not 0) of one file. `keep_const` names functions that constants call; `next_function` is
/// the number of the next function and is advanced.
#[must_use]
pub fn weave(
    text: &str,
    mutants: &[(usize, &Mutant)],
    keep_const: &BTreeSet<String>,
    next_function: &mut usize,
) -> Woven {
    let mask = source::mask(text);
    let mut functions: BTreeMap<(usize, usize), Vec<(usize, &Mutant)>> = BTreeMap::new();
    let mut out = Woven::default();
    for &(number, mutant) in mutants {
        match &mutant.function {
            Some(range) => functions.entry((range.start, range.end)).or_default().push((number, mutant)),
            None => out.single.push(number),
        }
    }
    // What is replaced, in order: bodies, and the word `const` outside of them.
    let mut edits: BTreeMap<usize, (usize, Edit<'_>)> = BTreeMap::new();
    for (&(start, end), mutants) in &functions {
        let nested = functions.keys().any(|&(s, e)| s <= start && end <= e && (s, e) != (start, end));
        let body = source::body(&mask, &(start..end)).filter(|body| {
            let head = &mask[start..body.start];
            let kept = name_of_const(head).is_some_and(|name| keep_const.contains(name));
            let outside = mutants.iter().any(|(_, m)| m.span.start < body.start || m.span.end > body.end);
            // Every body would have a type of its own.
            let opaque = head.contains("-> impl ");
            !(nested || kept || outside || opaque) && *next_function < MAX_FUNCTIONS
        });
        match body {
            Some(body) => {
                out.woven.extend(mutants.iter().map(|(number, _)| (*number, *next_function)));
                let edit = Edit::Choice { function: *next_function, body: body.clone(), mutants };
                edits.insert(body.start, (body.end, edit));
                *next_function += 1;
            }
            None => out.single.extend(mutants.iter().map(|(number, _)| *number)),
        }
    }
    for (at, word) in mask.match_indices("const fn ") {
        let inside = edits.range(..=at).next_back().is_some_and(|(_, (end, _))| at < *end);
        let kept = name_of_const(&mask[at..]).is_some_and(|name| keep_const.contains(name));
        if !inside && !kept {
            edits.insert(at, (at + word.len() - "fn ".len(), Edit::Nothing));
        }
    }
    let mut at = 0;
    for (start, (end, edit)) in edits {
        out.text.push_str(&text[at..start]);
        if let Edit::Choice { function, body, mutants } = edit {
            out.choice(text, function, &body, mutants);
        }
        at = end;
    }
    out.text.push_str(&text[at..]);
    out
}

enum Edit<'a> {
    Nothing,
    Choice { function: usize, body: Range<usize>, mutants: &'a [(usize, &'a Mutant)] },
}

impl Woven {
    fn choice(&mut self, text: &str, function: usize, body: &Range<usize>, mutants: &[(usize, &Mutant)]) {
        let _ = writeln!(self.text, "match crate::mutant_switch::chosen({function}) {{");
        for (number, mutant) in mutants {
            let first = 1 + self.text.matches('\n').count();
            let before = &text[body.start..mutant.span.start];
            let after = &text[mutant.span.end..body.end];
            let _ = writeln!(self.text, "{number} => {{{before} {} {after}}}", mutant.replacement);
            self.lines.push((first..1 + self.text.matches('\n').count(), *number));
        }
        let _ = writeln!(self.text, "_ => {{{}}}\n}}", &text[body.clone()]);
    }
}

/// The name of the function whose head (masked) this is, if it is a `const fn`.
fn name_of_const(head: &str) -> Option<&str> {
    let (_, rest) = head.split_once("const fn ")?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(text: &str, function: Option<&str>, from: &str, to: &str) -> Mutant {
        let range = |part: &str| text.find(part).map(|at| at..at + part.len());
        Mutant {
            file: "f.rs".into(),
            what: String::new(),
            line: String::new(),
            column: 0,
            function: function.and_then(range),
            span: range(from).unwrap_or_default(),
            replacement: to.into(),
        }
    }

    #[test]
    fn a_function_gets_one_body_for_each_mutant() {
        let f = "pub const fn f(a: u8) -> bool {\n    a == 1\n}";
        let text = format!("const C: i8 = -1;\n{f}\nconst fn g() -> u8 {{ 2 }}\nconst G: u8 = g();\n");
        let list = [
            mutant(&text, Some(f), "==", "!="),
            mutant(&text, Some(f), "a == 1", "true"),
            mutant(&text, None, "-1", "1"),
            mutant(&text, Some("const fn g() -> u8 { 2 }"), "2", "0"),
        ];
        let numbered: Vec<_> = list.iter().enumerate().map(|(i, m)| (i + 1, m)).collect();
        let mut next = 5;
        let woven = weave(&text, &numbered, &BTreeSet::from(["g".to_owned()]), &mut next);
        assert_eq!(
            woven.text,
            "const C: i8 = -1;\npub fn f(a: u8) -> bool {match crate::mutant_switch::chosen(5) {\n\
             1 => {\n    a  !=  1\n}\n2 => {\n     true \n}\n_ => {\n    a == 1\n}\n}\n}\n\
             const fn g() -> u8 { 2 }\nconst G: u8 = g();\n"
        );
        assert_eq!((woven.woven.as_slice(), next), ([(1, 5), (2, 5)].as_slice(), 6));
        assert_eq!(woven.single, [3, 4]);
        let at = |part| 1 + woven.text[..woven.text.find(part).unwrap_or(0)].matches('\n').count();
        assert_eq!(woven.mutant_at(at("!=")), Some(1));
        assert_eq!(woven.mutant_at(at("true")), Some(2));
        assert_eq!(woven.mutant_at(at("a == 1")), None);
    }

    #[test]
    fn a_function_in_a_function_and_an_opaque_result_are_built_alone() {
        let inner = "fn b() -> u8 { 1 }";
        let outer = format!("fn a() -> u8 {{ {inner} b() + 2 }}");
        let opaque = "fn c() -> impl Iterator { x }";
        let text = format!("{outer}\n{opaque}\n");
        let list = [
            mutant(&text, Some(inner), "1", "0"),
            mutant(&text, Some(&outer), "+", "-"),
            mutant(&text, Some(opaque), "x", "empty()"),
        ];
        let numbered: Vec<_> = list.iter().enumerate().map(|(i, m)| (i + 1, m)).collect();
        let woven = weave(&text, &numbered, &BTreeSet::new(), &mut 0);
        assert_eq!(woven.single, [1, 3]);
        assert_eq!(woven.woven, [(2, 0)]);
    }
}
