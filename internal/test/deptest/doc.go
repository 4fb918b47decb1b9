// Package deptest holds the rules of who may import what, as tests that say
// why.
package deptest
