// Command mutants takes the rules of Keyway away one at a time, in a scratch
// copy, and looks whether their tests notice. It is what `make mutants` runs.
package main

import "fmt"

func main() { fmt.Println(len(mutations())) }
