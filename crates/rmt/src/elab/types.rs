//! Types that a variable can have.
use crate::ir::Ty;
use std::rc::Rc;

/// A type that a variable can have.
#[derive(Debug, Clone)]
pub(super) enum Type {
    Scalar(Ty),
    Header(Rc<Composite>),
    Struct(Rc<Composite>),
    Void,
}

/// A header or struct.
#[derive(Debug)]
pub(super) struct Composite {
    pub name: String,
    pub members: Vec<(String, Type)>,
}

impl Type {
    pub(super) fn scalar(&self) -> Option<Ty> {
        match self {
            Type::Scalar(ty) => Some(*ty),
            _ => None,
        }
    }

    pub(super) fn composite_name(&self) -> Option<&str> {
        match self {
            Type::Header(c) | Type::Struct(c) => Some(&c.name),
            _ => None,
        }
    }
}
