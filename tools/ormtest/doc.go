// Package ormtest proves that messages can be published in the transactions of
// libraries that stand between a service and database/sql. It is a module of its
// own so that nobody else gets their dependencies.
//
// Its tests want CGO_ENABLED=0: GORM's driver brings a SQLite in C, which takes a
// minute to compile and which nothing here uses.
package ormtest
