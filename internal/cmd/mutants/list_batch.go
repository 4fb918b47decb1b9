package main

func batchMutations() []mutation {
	return []mutation{
		{
			rule: "a batch takes nothing along past a Lock",
			file: "localmutex/item.go",
			old:  "more && w != nil && w.item != nil; {",
			new:  "more && w != nil; {\n\t\tif w.item == nil {\n\t\t\tw = w.next\n\t\t\tcontinue\n\t\t}",
			test: "./localmutex -run '^TestTakeKeepsOrder$'",
		},
		{
			rule: "an execution that Close has listed takes nothing along",
			file: "localmutex/item.go",
			old:  "if e.listed {",
			new:  "if false {",
			test: "./localmutex -run '^TestListedTakesNothing$'",
		},
		{
			rule: "an item that was taken along no longer counts as waiting",
			file: "localmutex/item.go",
			old:  "\t\t\tt.Queue.leave()\n",
			new:  "",
			test: "./localmutex -run '^TestTakeKeepsOrder$'",
		},
		{
			rule: "an item's waiter is not given to callers of Lock",
			file: "localmutex/table.go",
			old:  "\tif w.item != nil {\n\t\treturn\n\t}\n",
			new:  "",
			test: "./localmutex -run '^TestItemIsUsedAgain$'",
		},
		{
			rule: "Take is for the execution that holds the key",
			file: "localmutex/item.go",
			old:  "e == nil || !e.claimed() || e.token != token",
			new:  "e == nil || !e.claimed()",
			test: "./localmutex -run '^TestItemMisuse$'",
		},
	}
}
