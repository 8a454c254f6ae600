package fakejira

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
)

// multipart reads the parts named "file" of an upload.
func (c *call) multipart() ([]Attachment, error) {
	_, params, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		return nil, fmt.Errorf("the upload is not multipart/form-data: %q", c.Header.Get("Content-Type"))
	}
	var files []Attachment
	for r := multipart.NewReader(bytes.NewReader(c.body), params["boundary"]); ; {
		part, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("the upload is cut or broken: %w", err)
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return nil, fmt.Errorf("the upload is cut or broken: %w", err)
		}
		if part.FormName() == "file" {
			files = append(files, Attachment{Filename: part.FileName(), MIMEType: part.Header.Get("Content-Type"), Content: content})
		}
	}
	if len(files) == 0 {
		return nil, errors.New("the upload has no part named 'file'")
	}
	return files, nil
}
