//! A scratch copy of the repository in which mutants are built.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a compiler says against a program.
#[derive(Debug)]
pub struct BuildError {
    /// With its code, such as `E0015`.
    pub code: String,
    /// The first line.
    pub message: String,
    /// File and line (from 1) of everything it points at, the most important first.
    pub places: Vec<(String, usize)>,
}

/// The scratch copy.
#[derive(Debug)]
pub struct Workshop {
    tree: PathBuf,
    target: PathBuf,
    directory: &'static str,
    package: &'static str,
}

impl Workshop {
    /// Copies the repository at `root`, with what isn't committed yet.
    ///
    /// # Errors
    /// Of git and the file system.
    pub fn new(root: &Path, directory: &'static str, package: &'static str) -> Result<Self, String> {
        let scratch = root.join("target/mutants");
        let (tree, target) = (scratch.join(directory), scratch.join("build"));
        if tree.exists() {
            fs::remove_dir_all(&tree).map_err(|e| e.to_string())?;
        }
        let list = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|e| format!("git: {e}"))?;
        for file in String::from_utf8_lossy(&list.stdout).split('\0').filter(|file| root.join(file).is_file())
        {
            let to = tree.join(file);
            let copied =
                to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::copy(root.join(file), &to));
            copied.map_err(|e| format!("{file}: {e}"))?;
        }
        Ok(Self { tree, target, directory, package })
    }

    /// The mutants that cargo-mutants finds in the package, as JSON.
    ///
    /// # Errors
    /// That it isn't there, or failed.
    pub fn list(&self) -> Result<String, String> {
        let out = Command::new("cargo")
            .args(["mutants", "--list", "--json", "--package", self.package])
            .current_dir(&self.tree)
            .output()
            .map_err(|e| format!("cargo mutants: {e}"))?;
        if !out.status.success() {
            return Err(format!(
                "cargo mutants (is cargo-mutants installed?): {}",
                String::from_utf8_lossy(&out.stderr)
            ));
        }
        String::from_utf8(out.stdout).map_err(|e| e.to_string())
    }

    /// Replaces a file of the copy.
    ///
    /// # Errors
    /// Of the file system.
    pub fn write(&self, file: &str, text: &str) -> Result<(), String> {
        fs::write(self.tree.join(file), text).map_err(|e| format!("{file}: {e}"))
    }

    /// Adds to a file of the copy, once.
    ///
    /// # Errors
    /// Of the file system.
    pub fn append(&self, file: &str, text: &str) -> Result<(), String> {
        let path = self.tree.join(file);
        let before = fs::read_to_string(&path).map_err(|e| format!("{file}: {e}"))?;
        if before.ends_with(text) { Ok(()) } else { self.write(file, &(before + text)) }
    }

    /// The package's directory, from the repository's root.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.directory
    }

    /// Where the package's tests run.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.tree.join(self.directory)
    }

    /// Builds the package's tests, or only those in the library itself; returns the test programs, the library's first.
    ///
    /// # Errors
    /// What the compiler says, or how it couldn't be run.
    pub fn build(&self, library_only: bool) -> Result<Vec<PathBuf>, Vec<BuildError>> {
        let mut cargo = Command::new("cargo");
        cargo.args([
            "test",
            "--no-run",
            "--locked",
            "--message-format=json",
            "--package",
            self.package,
            "--lib",
        ]);
        if !library_only {
            cargo.arg("--tests");
        }
        // Quick builds count here, quick programs don't.
        let opt_level = format!("profile.dev.package.{}.opt-level=0", self.package);
        cargo.args(["--config", &opt_level, "--config", "profile.dev.debug=0"]);
        cargo
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("RUSTFLAGS", "--cap-lints=allow");
        let failed = |message: String| vec![BuildError { code: String::new(), message, places: Vec::new() }];
        let out = cargo.output().map_err(|e| failed(format!("cargo: {e}")))?;
        let stdout = String::from_utf8_lossy(&out.stdout);
        let messages: Vec<Value> =
            stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if !out.status.success() {
            let errors: Vec<BuildError> = messages.iter().filter_map(build_error).collect();
            let nothing =
                errors.is_empty().then(|| failed(String::from_utf8_lossy(&out.stderr).into_owned()));
            return Err(nothing.unwrap_or(errors));
        }
        let mut programs: Vec<(bool, PathBuf)> = messages.iter().filter_map(program).collect();
        programs.sort();
        Ok(programs.into_iter().map(|(_, path)| path).collect())
    }
}

/// Copies programs to a directory of their own: the next build would replace them.
///
/// # Errors
/// Of the file system.
pub fn set_aside(programs: &[PathBuf], directory: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", directory.display());
    if directory.exists() {
        fs::remove_dir_all(directory).map_err(failed)?;
    }
    fs::create_dir_all(directory).map_err(failed)?;
    let copy = |program: &PathBuf| {
        let to = directory.join(program.file_name().unwrap_or_default());
        fs::copy(program, &to).map(|_| to).map_err(failed)
    };
    programs.iter().map(copy).collect()
}

/// Path of a test program, and whether it isn't the library's.
fn program(message: &Value) -> Option<(bool, PathBuf)> {
    let path = message["executable"].as_str()?;
    let test = message["profile"]["test"].as_bool()?;
    test.then(|| (message["target"]["kind"][0] != "lib", PathBuf::from(path)))
}

fn build_error(message: &Value) -> Option<BuildError> {
    let message = &message["message"];
    if message["level"] != "error" {
        return None;
    }
    let mut spans: Vec<&Value> = message["spans"].as_array()?.iter().collect();
    spans.sort_by_key(|span| span["is_primary"] != true);
    let mut places = Vec::new();
    for mut span in spans {
        // Of what a macro made, also where the macro stands.
        loop {
            if let (Some(file), Some(line)) = (span["file_name"].as_str(), span["line_start"].as_u64()) {
                places.push((file.to_owned(), usize::try_from(line).unwrap_or(0)));
            }
            span = match &span["expansion"] {
                Value::Null => break,
                expansion => &expansion["span"],
            };
        }
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(BuildError { code: text(&message["code"]["code"]), message: text(&message["message"]), places })
}
