//! What `multipath.conf` says about a device (multipath.conf(5)), as far as it concerns how long I/O may hang.
//!
//! Only the configuration is read, not the running daemon nor its built-in table of storage products, so "not said" is an answer.

use super::root::Root;

/// Nested sections deeper than that are not looked into; the format has two.
const DEPTH_MAX: usize = 4;

/// A section: its name, its settings, its sections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Section {
    name: String,
    settings: Vec<(String, String)>,
    sections: Vec<Section>,
}

/// What happens to I/O when no path is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPath {
    /// It fails.
    Fail,
    /// It waits for ever.
    Queue,
    /// It waits for so many checks of the paths.
    Retries(u64),
}

/// What the configuration says about one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) no_path: Option<NoPath>,
    /// Seconds between two checks.
    pub(super) polling_interval: Option<u64>,
    /// As written.
    pub(super) fast_io_fail: Option<String>,
    /// As written.
    pub(super) dev_loss: Option<String>,
}

/// The device asked about.
pub(super) struct Device<'a> {
    pub(super) wwid: &'a str,
    pub(super) vendor: &'a str,
    pub(super) product: &'a str,
}

/// All configuration of multipath, `None` if there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config(Section);

impl Config {
    pub(super) fn of(root: &Root) -> Option<Self> {
        let mut texts: Vec<String> = root.text("/etc/multipath.conf").into_iter().collect();
        let more = root.names("/etc/multipath/conf.d").into_iter().filter(|name| name.ends_with(".conf"));
        texts.extend(more.filter_map(|name| root.text(&format!("/etc/multipath/conf.d/{name}"))));
        (!texts.is_empty()).then(|| Self::parse(&texts.join("\n")))
    }

    fn parse(text: &str) -> Self {
        let mut open = vec![Section::default()];
        for line in text.lines() {
            let line = line.split(['#', '!']).next().unwrap_or_default().trim();
            for part in braces(line) {
                match part {
                    Part::Open(name) if open.len() <= DEPTH_MAX => {
                        open.push(Section { name: name.to_owned(), ..Section::default() });
                    }
                    Part::Open(_) => {}
                    Part::Close => close(&mut open),
                    Part::Setting(text) => {
                        let (key, value) = text.split_once([' ', '\t']).unwrap_or((text, ""));
                        let setting = (key.to_owned(), value.trim().trim_matches('"').to_owned());
                        if let Some(section) = open.last_mut() {
                            section.settings.push(setting);
                        }
                    }
                }
            }
        }
        while open.len() > 1 {
            close(&mut open);
        }
        Self(open.pop().unwrap_or_default())
    }

    /// What is said about a device: its own section, overrides, its product's, defaults, in this order.
    pub(super) fn of_device(&self, device: &Device<'_>) -> Said {
        let named = |name: &'static str| self.0.sections.iter().filter(move |s| s.name == name);
        let own = named("multipaths")
            .flat_map(|s| &s.sections)
            .filter(|s| s.value("wwid").is_some_and(|wwid| wwid == device.wwid));
        let product = named("devices").flat_map(|s| &s.sections).filter(|s| {
            let fits = |key, found| s.value(key).is_none_or(|pattern| matches(pattern, found));
            fits("vendor", device.vendor) && fits("product", device.product)
        });
        let order: Vec<&Section> =
            own.chain(named("overrides")).chain(product).chain(named("defaults")).collect();
        let say = |key: &str| order.iter().find_map(|s| s.value(key)).map(str::to_owned);
        let no_path = say("no_path_retry").and_then(|text| no_path(&text)).or_else(|| {
            // The older way to say it.
            say("features").filter(|f| f.contains("queue_if_no_path")).map(|_| NoPath::Queue)
        });
        Said {
            no_path,
            polling_interval: say("polling_interval").and_then(|text| text.parse().ok()),
            fast_io_fail: say("fast_io_fail_tmo"),
            dev_loss: say("dev_loss_tmo"),
        }
    }
}

impl Section {
    /// The last setting of this name.
    fn value(&self, key: &str) -> Option<&str> {
        self.settings.iter().rev().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }
}

fn close(open: &mut Vec<Section>) {
    if open.len() > 1 {
        if let (Some(done), Some(outer)) = (open.pop(), open.last_mut()) {
            outer.sections.push(done);
        }
    }
}

fn no_path(text: &str) -> Option<NoPath> {
    match text {
        "fail" | "0" => Some(NoPath::Fail),
        "queue" => Some(NoPath::Queue),
        number => number.parse().ok().map(NoPath::Retries),
    }
}

enum Part<'a> {
    Open(&'a str),
    Close,
    Setting(&'a str),
}

/// The parts of a line: `name {`, settings, `}`. More than one of them may stand in a line.
fn braces(line: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(at);
        let before = before.trim();
        if after.starts_with('{') {
            parts.push(Part::Open(before));
        } else {
            if !before.is_empty() {
                parts.push(Part::Setting(before));
            }
            parts.push(Part::Close);
        }
        rest = after.get(1..).unwrap_or_default();
    }
    if !rest.trim().is_empty() {
        parts.push(Part::Setting(rest.trim()));
    }
    parts
}

/// Whether a pattern of `multipath.conf`, a regular expression, fits. Literal text, `.*` and anchors are understood, which is what such
/// patterns consist of; others fit nothing.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, begins) = pattern.strip_prefix('^').map_or((pattern, false), |p| (p, true));
    let (pattern, ends) = pattern.strip_suffix('$').map_or((pattern, false), |p| (p, true));
    let mut pieces = pattern.split(".*");
    let first = pieces.next().unwrap_or_default();
    let rest: Vec<&str> = pieces.collect();
    let mut at = match text.find(first) {
        Some(at) if !begins || at == 0 => at + first.len(),
        _ => return false,
    };
    for piece in rest {
        match text.get(at..).and_then(|left| left.find(piece)) {
            Some(found) => at += found + piece.len(),
            None => return false,
        }
    }
    !ends || at == text.len() || pattern.ends_with(".*")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        defaults {
            polling_interval 5     # seconds
            no_path_retry    fail
        }
        devices {
            device { vendor "ACME"
                     product "^Disk.*"
                     no_path_retry queue }
        }
        overrides { fast_io_fail_tmo 5 }
        multipaths {
            multipath {
                wwid  3600a
                no_path_retry 4
            }
        }
    "#;

    fn said(wwid: &str, vendor: &str, product: &str) -> Said {
        Config::parse(TEXT).of_device(&Device { wwid, vendor, product })
    }

    #[test]
    fn the_nearest_section_decides() {
        assert_eq!(said("3600a", "ACME", "Disk 9").no_path, Some(NoPath::Retries(4)));
        assert_eq!(said("3600b", "ACME", "Disk 9").no_path, Some(NoPath::Queue));
        let other = said("3600b", "ACME", "My Disk");
        assert_eq!((other.no_path, other.polling_interval), (Some(NoPath::Fail), Some(5)));
        assert_eq!(other.fast_io_fail.as_deref(), Some("5"));
        let old = Config::parse("defaults {\nfeatures \"1 queue_if_no_path\"\n}");
        let any = Device { wwid: "", vendor: "", product: "" };
        assert_eq!(old.of_device(&any).no_path, Some(NoPath::Queue));
        assert_eq!(Config::parse("").of_device(&any), Said::default());
    }

    #[test]
    fn whatever_the_text_is() {
        for text in
            ["}", "}}} a b {", "{{{{{{{{{{{{ x y", "defaults {", "a { b { c { d { e { f { g 1 } } } } } } }"]
        {
            let _ = Config::parse(text);
        }
    }

    #[test]
    fn patterns() {
        for (pattern, text, fits) in [
            (".*", "ACME", true),
            ("ACME", "ACME", true),
            ("AC", "ACME", true),
            ("^CME", "ACME", false),
            ("ME$", "ACME", true),
            ("AC$", "ACME", false),
            ("A.*E", "ACME", true),
            ("A.*X", "ACME", false),
            ("", "ACME", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} on {text}");
        }
    }
}
