//! Which results the schedule can lead to, and why. Everything else is a failure of the run.

use crate::program::Program;

/// A result other than 0 that an operation may have.
#[derive(Debug)]
pub struct Allowed {
    /// One of the words that describe the operation.
    pub word: &'static str,
    /// The result.
    pub code: i32,
    /// Only for hosts of this program.
    pub only: Option<Program>,
    /// How it comes about.
    pub why: &'static str,
}

const fn any(word: &'static str, code: i32, why: &'static str) -> Allowed {
    Allowed { word, code, only: None, why }
}

/// An operation that must succeed has no line.
pub const ALLOWED: &[Allowed] = &[
    any("acquire", -11, "being released on this host, or shared by a live host"),
    any("acquire", -16, "being acquired by another process of this host"),
    any("acquire", -17, "held by another process of this host in a way that excludes ours"),
    any("acquire", -243, "another live host owns it, if only for a moment"),
    any("acquire", -244, "another host won this version"),
    any("acquire", -245, "our ballot committed another host"),
    any("shared", -246, "nine times another host was just entering shared mode"),
    any(
        "nowait",
        -247,
        "the owner's last renewal has not been seen yet, and its lease does not show a newer one",
    ),
    any("version", -240, "the lease was taken since its version was read"),
    any("kept", -117, "an orphan of this host"),
    Allowed {
        word: "orphan-only",
        code: -2,
        only: Some(Program::Ours),
        why: "no orphan; the original acquires it anew",
    },
    any("renamed", -227, "it has its other name now"),
    Allowed {
        word: "changing",
        code: -227,
        only: Some(Program::Reference),
        why: "its block says released; another host had committed it, took the lease and renamed it before the leader was read",
    },
    Allowed {
        word: "rename",
        code: -227,
        only: Some(Program::Ours),
        why: "a slow commit of what we hold has taken back its name; it is released, and not renamed. Counted with the other slow commits",
    },
    any("to-exclusive", -11, "another host shares it; here also another process of this host"),
    any("to-exclusive", -243, "another host is entering shared mode"),
    any("to-exclusive", -244, "another host won this version"),
    any("to-exclusive", -245, "our ballot committed another host"),
    any("request", -272, "the version asked for has been reached since it was read"),
    any("request", -273, "a later version has been asked for"),
    any("set-event", -16, "another event was set on this host within the last 6 T"),
    any("read-renamed", -227, "it has its other name now"),
];

/// Whether `code` is a result that an operation described by `words` (joined with `+`) may have on a host of `program`.
#[must_use]
pub fn expected(words: &str, code: i32, program: Program) -> bool {
    code == 0
        || words == "release-orphan" && code > 0 // the number of orphans
        || ALLOWED.iter().any(|allowed| {
            allowed.code == code
                && allowed.only.is_none_or(|only| only == program)
                && words.split('+').any(|word| word == allowed.word)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_in_the_table_is_unexpected() {
        for program in [Program::Ours, Program::Reference] {
            assert!(expected("acquire+shared", -246, program));
            assert!(!expected("acquire", -246, program), "only shared ones");
            assert!(!expected("acquire+nowait", -202, program));
            assert!(!expected("release", -1, program));
            assert!(!expected("release", 1, program));
            assert!(expected("release-orphan", 1, program));
            assert_eq!(expected("acquire+orphan-only", -2, program), program == Program::Ours);
        }
    }
}
