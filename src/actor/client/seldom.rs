//! State that few connections have at any time: a pointer where there is none, since there are many connections.

/// A value that is its default, and takes no memory, until it is needed.
#[derive(Debug)]
pub(super) struct Seldom<T>(Option<Box<T>>);

impl<T> Default for Seldom<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Default> Seldom<T> {
    pub(super) fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    /// For a change that only makes sense where there is something.
    pub(super) fn existing(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    pub(super) fn get_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }

    /// Takes the value, and with it its memory.
    pub(super) fn take(&mut self) -> T {
        self.0.take().map(|value| *value).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.0 = None;
    }
}
