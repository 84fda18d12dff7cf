//! Blocks of code in Markdown.

/// A block of code and what is said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// Line of the page on which its text begins.
    pub(crate) line: usize,
    /// What stands behind the fence: `sh`, `host1`, …; nothing for an indented block.
    pub(crate) words: Vec<String>,
    pub(crate) text: String,
}

impl Block {
    pub(crate) fn is(&self, word: &str) -> bool {
        self.words.iter().any(|known| known == word)
    }

    /// Whether a reader types it: plain fences have output, files and pictures.
    pub(crate) fn is_shell(&self) -> bool {
        self.words.is_empty() || self.is("sh")
    }
}

/// The fenced and the indented blocks of a page. A fence without a word, `~`, is `["text"]`.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut fence: Option<Block> = None;
    let mut indented = false;
    for (number, line) in page.lines().enumerate() {
        let line_number = number + 1;
        if let Some(block) = &mut fence {
            if line.trim_start().starts_with("```") {
                blocks.extend(fence.take());
            } else {
                block.text.push_str(line);
                block.text.push('\n');
            }
        } else if let Some(words) = line.trim_start().strip_prefix("```") {
            let mut words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            if words.is_empty() {
                words.push("text".to_owned());
            }
            fence = Some(Block { line: line_number + 1, words, text: String::new() });
            indented = false;
        } else if let Some(code) = line.strip_prefix("    ") {
            if !indented {
                blocks.push(Block { line: line_number, words: Vec::new(), text: String::new() });
            }
            indented = true;
            if let Some(block) = blocks.last_mut() {
                block.text.push_str(code);
                block.text.push('\n');
            }
        } else if !line.is_empty() {
            indented = false;
        }
    }
    assert!(fence.is_none(), "a fence that does not end");
    blocks
}

/// The commands in a shell block that begin with one of these programs, as words; line continuations are joined, comments and what
/// stands beside a command after three blanks are left out.
pub(crate) fn commands(block: &Block, programs: &[&str]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let joined = block.text.split("\\\n").map(str::trim_start).collect::<Vec<_>>().join(" ");
    for line in joined.lines() {
        // What another program prints stands for a word.
        let line =
            line.split("$(").enumerate().fold(String::new(), |all, (n, part)| match part.split_once(')') {
                Some((_, rest)) if n > 0 => all + "x" + rest,
                _ => all + part,
            });
        let line = line.trim().trim_start_matches("$ ");
        let line = line.split(" #").next().unwrap_or_default();
        let line = line.split("   ").next().unwrap_or_default();
        if line.starts_with('#') {
            continue;
        }
        for part in line.split(['|', ';']).flat_map(|part| part.split("&&")) {
            // "for x in y; do", "sudo", "A=b" and the like come before a command.
            let words = part.split_whitespace().skip_while(|word| {
                ["do", "then", "sudo", "exec", "if", "!", "while", "until"].contains(word)
                    || word.split_once('=').is_some_and(|(name, _)| {
                        !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
                    })
            });
            let words: Vec<String> = words.map(|word| word.trim_matches('`').to_owned()).collect();
            let program = words.first().map(|word| word.rsplit('/').next().unwrap_or_default());
            if program.is_some_and(|program| programs.contains(&program)) {
                let words = words.into_iter().take_while(|word| word != "&" && !word.starts_with(['>', '<']));
                found.push(words.collect());
            }
        }
    }
    found
}

/// Where a page's links lead: the targets of `[text](target)` outside of code.
pub(crate) fn links(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in page.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced || line.starts_with("    ") {
            continue;
        }
        // What stands between backquotes is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        for rest in prose.split("](").skip(1) {
            found.extend(rest.split(')').next().map(str::to_owned));
        }
    }
    found
}

/// The anchors that a page's headings make.
pub(crate) fn anchors(page: &str) -> Vec<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let text = line.trim_start_matches('#').trim().to_lowercase();
            let kept = text.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_');
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn blocks_commands_and_links_are_found() {
    let page = "# A b: c\n\ntext [x](y.md#z) `[no](link)`\n\n    sanlock gets -h 1   the hosts\n\n    A=b wdmd -D # foreground\n\n\
                ```sh host1\nsudo sanlock client status | grep x && sanlock who LS \\\n  --json >out\nls sanlock\n```\n```\nsanlock x\n```\n";
    let found = blocks(page);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[1].is("host1") && found[1].is_shell() && found[0].is_shell() && !found[2].is_shell());
    let all: Vec<String> = found[..2]
        .iter()
        .flat_map(|block| commands(block, &["sanlock", "wdmd"]))
        .map(|words| words.join(" "))
        .collect();
    assert_eq!(all, ["sanlock gets -h 1", "wdmd -D", "sanlock client status", "sanlock who LS --json"]);
    assert_eq!(links(page), ["y.md#z"]);
    assert_eq!(anchors(page), ["a-b-c"]);
}
