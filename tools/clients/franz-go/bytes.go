package main

import "encoding/base64"

// Null stays null: a header may have no value.
func decode(text *string) ([]byte, error) {
	if text == nil {
		return nil, nil
	}
	value, err := base64.StdEncoding.DecodeString(*text)
	if value == nil && err == nil {
		value = []byte{}
	}
	return value, err
}

func encode(value []byte) *string {
	if value == nil {
		return nil
	}
	text := base64.StdEncoding.EncodeToString(value)
	return &text
}
