//! The two programs.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// Path of the original as packaged.
const REFERENCE_PATH: &str = "/usr/sbin/sanlock";

/// Whether our own package is installed in the original's place: everything would be compared with itself.
fn is_ours() -> bool {
    static OURS: LazyLock<bool> = LazyLock::new(|| {
        let output = Command::new(REFERENCE_PATH).arg("-V").output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("sanlock-rs"))
    });
    *OURS
}

/// One of the two implementations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The original sanlock 3.8.5.
    Reference,
    /// The program of this workspace.
    Ours,
}

impl Program {
    /// The program chosen by `SANLOCK_UNDER_TEST` (`ours` when unset), or `None` when it is the
    /// reference and that is not installed.
    ///
    /// # Panics
    /// On another value, and when the program is missing and must not be (see [`Self::available`]).
    #[must_use]
    pub fn under_test() -> Option<Self> {
        let program = match std::env::var("SANLOCK_UNDER_TEST").as_deref() {
            Ok("reference") => Self::Reference,
            Ok("ours") | Err(_) => Self::Ours,
            Ok(other) => panic!("SANLOCK_UNDER_TEST must be reference or ours, not {other:?}"),
        };
        program.available().then_some(program)
    }

    /// Like [`Self::under_test`], for cases where the reference misbehaves by hanging or dying
    /// (socket-protocol.md 15): `None` for the reference, with a message that names the `fault`.
    #[must_use]
    pub fn ours_under_test(fault: &str) -> Option<Self> {
        let program = Self::under_test()?;
        if program == Self::Reference {
            eprintln!("skipped: not run on the reference, which {fault}");
            return None;
        }
        Some(program)
    }

    /// Whether the program can be run.
    ///
    /// # Panics
    /// When ours has not been built, and when the reference is missing under `CI`: there a
    /// skipped case would look like a passed one.
    #[must_use]
    pub fn available(self) -> bool {
        let path = self.path();
        if path.exists() {
            assert!(
                self == Self::Ours || !is_ours(),
                "{REFERENCE_PATH} is not the original: install its package"
            );
            return true;
        }
        match self {
            Self::Ours => panic!(
                "{} does not exist: build it first (cargo build --package sanlock) or set SANLOCK_OURS",
                path.display()
            ),
            Self::Reference => missing(&format!("the reference sanlock ({REFERENCE_PATH})")),
        }
    }

    /// Whether both programs can be run; for interoperation cases.
    #[must_use]
    pub fn both_available() -> bool {
        Self::Ours.available() && Self::Reference.available()
    }

    /// Path of the executable. Ours: `SANLOCK_OURS`, else `sanlock` in the build directory the
    /// test itself lies in (`target/debug` or `target/release`).
    ///
    /// # Panics
    /// When the test executable's own path is unknown.
    #[must_use]
    pub fn path(self) -> PathBuf {
        match self {
            Self::Reference => PathBuf::from(REFERENCE_PATH),
            Self::Ours => {
                std::env::var_os("SANLOCK_OURS").map_or_else(|| build_dir().join("sanlock"), PathBuf::from)
            }
        }
    }

    /// Word for messages and directory names.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Ours => "ours",
        }
    }
}

/// Notes that something the case needs is missing. Returns `false`.
///
/// # Panics
/// Under `CI`.
#[must_use]
pub fn missing(what: &str) -> bool {
    assert!(std::env::var_os("CI").is_none(), "{what} is missing, and CI must not skip");
    eprintln!("skipped: {what} is missing");
    false
}

/// The build directory: test executables lie in it or in its `deps` directory.
///
/// # Panics
/// When the path of the running executable is unknown.
#[must_use]
pub fn build_dir() -> PathBuf {
    let mut dir = std::env::current_exe().unwrap_or_else(|error| panic!("own path unknown: {error}"));
    dir.pop();
    if dir.ends_with("deps") {
        dir.pop();
    }
    dir
}

/// A shared object from C source, under the directory of build products.
///
/// # Panics
/// When `cc` is missing or does not compile it.
#[must_use]
pub(crate) fn compiled(name: &str, source: &str) -> PathBuf {
    let made = build_dir().join(format!("{name}-shim.{}.so", std::process::id()));
    let mut compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-x", "c", "-o"])
        .arg(&made)
        .args(["-", "-ldl"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run cc (package gcc): {error}"));
    let written = compiler.stdin.take().map(|mut input| input.write_all(source.as_bytes()));
    let status = compiler.wait().unwrap_or_else(|error| panic!("waiting for cc: {error}"));
    assert!(status.success(), "the {name} shim does not compile (written: {written:?})");
    // One name for all test programs, replaced in one step: several may do this at once.
    let path = build_dir().join(format!("{name}-shim.so"));
    fs::rename(&made, &path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}
