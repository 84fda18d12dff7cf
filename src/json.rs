//! Results as JSON (docs/json.md): one object on stdout, made of plain structs so that its form is the same every time.

use crate::output::print;
use sanlock_wire::code;
use serde::{Serialize, Serializer};

/// The number of the schema. It grows when a member changes its meaning or goes away; new members do not change it.
pub(crate) const SCHEMA: u32 = 1;

/// Bytes from a disk or the daemon that are usually text. What is not UTF-8 is written as `\xNN`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Text(pub(crate) Vec<u8>);

impl Text {
    /// For printing, with the same escapes.
    pub(crate) fn shown(&self) -> String {
        let mut out = String::new();
        for chunk in self.0.utf8_chunks() {
            out.push_str(chunk.valid());
            for byte in chunk.invalid() {
                out.push_str(&format!("\\x{byte:02x}"));
            }
        }
        out
    }

    /// For a terminal or a log: nothing in it begins a line, or does anything else than to be read.
    pub(crate) fn plain(&self) -> String {
        let mut out = String::new();
        for c in self.shown().chars() {
            if c.is_control() {
                let mut bytes = [0; 4];
                c.encode_utf8(&mut bytes).bytes().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
            } else {
                out.push(c);
            }
        }
        out
    }

    /// Whether there are no bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown())
    }
}

/// A place on storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Place {
    pub(crate) path: Text,
    pub(crate) offset: u64,
}

/// What every object begins with.
#[derive(Debug, Serialize)]
struct Document<'a, T: Serialize> {
    schema: u32,
    command: &'a str,
    #[serde(flatten)]
    body: &'a T,
}

/// An object as text, with a newline at its end. `command`: what was asked for.
pub(crate) fn document<T: Serialize>(command: &str, body: &T) -> String {
    // Numbers, strings, lists and structs of them: nothing that JSON could not express.
    let mut text =
        serde_json::to_string_pretty(&Document { schema: SCHEMA, command, body }).unwrap_or_default();
    text.push('\n');
    text
}

/// Prints the object that stands for a failure: `error` with the number, the symbol and the reason.
pub(crate) fn print_failure(command: &str, result: i32, reason: &str) {
    print(failure(command, result, reason, &()));
}

/// The same, with what was found all the same.
pub(crate) fn print_failure_with<T: Serialize>(command: &str, result: i32, reason: &str, found: &T) {
    print(failure(command, result, reason, found));
}

fn failure<T: Serialize>(command: &str, result: i32, reason: &str, found: &T) -> String {
    #[derive(Serialize)]
    struct Failed<'a, T: Serialize> {
        error: Reason<'a>,
        #[serde(flatten)]
        found: &'a T,
    }
    #[derive(Serialize)]
    struct Reason<'a> {
        code: i32,
        name: Option<&'a str>,
        reason: &'a str,
    }
    document(command, &Failed { error: Reason { code: result, name: code::name(result), reason }, found })
}

/// Prints an object.
pub(crate) fn print_document<T: Serialize>(command: &str, body: &T) {
    print(document(command, body));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_escaped() {
        for (bytes, shown) in [
            (&b"disk1"[..], "disk1"),
            (b"", ""),
            ("däta".as_bytes(), "däta"),
            (b"a\xffb\xc3", "a\\xffb\\xc3"),
        ] {
            assert_eq!(Text::from(bytes).shown(), shown);
            assert_eq!(Text::from(bytes).plain(), shown);
        }
        let forged = Text::from(&b"a\" LIVE\nhost 9 \"\x1b[2Jx\xc2\x85"[..]);
        assert_eq!(forged.plain(), "a\" LIVE\\x0ahost 9 \"\\x1b[2Jx\\xc2\\x85");
    }

    #[test]
    fn failures_have_number_symbol_and_reason() {
        let text = failure("gets", -2, "no daemon", &());
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["error"], serde_json::json!({"code": -2, "name": "ENOENT", "reason": "no daemon"}));
        assert!(failure("x", -1, "", &()).contains("\"name\": null"));
    }

    #[test]
    fn objects_begin_with_schema_and_command() {
        #[derive(Serialize)]
        struct Body {
            name: Text,
            largest: u64,
        }
        let body = Body { name: Text::from(&b"a\"b\xff"[..]), largest: u64::MAX };
        assert_eq!(
            document("x", &body),
            "{\n  \"schema\": 1,\n  \"command\": \"x\",\n  \"name\": \"a\\\"b\\\\xff\",\n  \"largest\": 18446744073709551615\n}\n"
        );
    }
}
