// Package pgexample runs the SQL patterns of package fence against a real
// PostgreSQL, which its tests start from the distribution's packages
// (Debian: postgresql). It is a module of its own so that users of Keyway do
// not get its database driver.
package pgexample
