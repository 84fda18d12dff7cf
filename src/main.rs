//! The `sanlock` command.
fn main() {}
