//! Elements of the files beside `config.xml`. Their readers know what stands in these tables and nothing else, and the reference shows them.

/// An element of such a file.
pub(super) struct FileElement {
    /// Below the root element.
    pub(super) path: &'static str,
    /// What it holds; elements where that is "".
    pub(super) value: Words,
    /// What holds without it.
    pub(super) without: Words,
    pub(super) many: bool,
    /// Whether it is HiveMQ's too.
    pub(super) own: bool,
    /// Markdown.
    pub(super) meaning: &'static str,
}

pub(super) enum Words {
    Say(&'static str),
    Computed(fn() -> String),
}

impl Words {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Say(text) => (*text).to_owned(),
            Self::Computed(words) => words(),
        }
    }
}

pub(super) const fn element(path: &'static str, value: Words, without: Words, meaning: &'static str) -> FileElement {
    FileElement { path, value, without, many: false, own: false, meaning }
}

/// An element that holds elements.
pub(super) const fn section(path: &'static str, meaning: &'static str) -> FileElement {
    element(path, Words::Say(""), Words::Say("required"), meaning)
}

impl FileElement {
    pub(super) const fn many(mut self) -> Self {
        self.many = true;
        self
    }

    pub(super) const fn own(mut self) -> Self {
        self.own = true;
        self
    }
}

/// Names of the elements right below `path`; "" is the root.
pub(super) fn children_of<'t>(table: &'t [FileElement], path: &str) -> impl Iterator<Item = &'static str> + use<'t> {
    let below = if path.is_empty() { String::new() } else { format!("{path}/") };
    table.iter().filter_map(move |element| element.path.strip_prefix(below.as_str()).filter(|name| !name.contains('/')))
}

/// The words of a list, in code, the first of them being the default.
pub(super) fn list<T>(words: &[(&str, T)]) -> String {
    words.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// The default of such a list.
pub(super) fn first<T>(words: &[(&str, T)]) -> String {
    words.first().map(|(word, _)| format!("`{word}`")).unwrap_or_default()
}
